"""A replica as a model: a queue, steps that mix prompt chunks and decodes, a cache that evicts the oldest.

Step times are those measured of SmolLM2-135M on two cores (docs/performance-log.md): a base for reading the
weights, so much for each prompt token and each sequence that decodes; beside streams a step is under 70 ms.
Its speed is what it measures, as an engine worker does.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from baton_contracts.heartbeats import ReplicaHeartbeat
from baton_contracts.kv_events import KvChange, KvEvents
from baton_engine_worker.attempt_notes import MEASURED_CHUNK_TOKENS
from baton_engine_worker.rates import RecentSpeed, SlidingRate
from bench.routing.traffic import BLOCK, Arrival


@dataclass(frozen=True)
class Speed:
    base_seconds: float = 0.004
    prompt_token_seconds: float = 0.00029
    decode_seconds: float = 0.0006
    longest_step_seconds: float = 0.07
    longest_chunk: int = 512


@dataclass(frozen=True)
class Size:
    kv_blocks: int = 2048
    max_running: int = 32
    max_waiting: int = 64
    max_waiting_tokens: int = 65_536


@dataclass(eq=False)
class Job:
    arrival: Arrival
    to_compute: int = 0
    cached_tokens: int = 0
    written: int = 0
    first_token_at: float | None = None


@dataclass(eq=False)
class SimulatedReplica:
    name: str
    speed: Speed = field(default_factory=Speed)
    size: Size = field(default_factory=Size)
    waiting: deque[Job] = field(default_factory=deque[Job])
    running: list[Job] = field(default_factory=list[Job])
    busy_seconds: float = 0.0
    num_finished: int = 0
    num_written: int = 0
    seq: int = 0
    _measured: RecentSpeed = field(default_factory=RecentSpeed)
    _requests: SlidingRate = field(default_factory=SlidingRate)
    _cache: OrderedDict[int, None] = field(default_factory=OrderedDict[int, None])

    @property
    def is_idle(self) -> bool:
        return not (self.waiting or self.running)

    def accepts(self, job: Job) -> bool:
        if len(self.waiting) >= self.size.max_waiting:
            return False
        tokens = sum(each.arrival.num_tokens for each in self.waiting)
        if self.waiting and tokens + job.arrival.num_tokens > self.size.max_waiting_tokens:
            return False
        self.waiting.append(job)
        return True

    def step(self, now: float, slowness: float = 1.0) -> tuple[float, KvEvents | None]:
        """Seconds that it took, and what it changed in the cache. Times of tokens are those of its end."""
        self._admit()
        decoding = [job for job in self.running if not job.to_compute]
        chunks = self._chunks(len(decoding))
        num_tokens = sum(count for _, count in chunks)
        seconds = slowness * (
            self.speed.base_seconds
            + self.speed.prompt_token_seconds * num_tokens
            + self.speed.decode_seconds * len(decoding)
        )
        self.busy_seconds += seconds
        stored: list[int] = []
        removed: list[int] = []
        for job, count in chunks:
            if count >= MEASURED_CHUNK_TOKENS:
                self._measured.note(count, seconds)
            job.to_compute -= count
            if not job.to_compute:
                job.first_token_at = now + seconds
                decoding.append(job)
                self._store(job.arrival.chain, stored, removed)
        for job in decoding:
            job.written += 1
            self.num_written += 1
        finished = [job for job in decoding if job.written >= job.arrival.answer_tokens]
        self.num_finished += len(finished)
        self.running = [job for job in self.running if job not in finished] if finished else self.running
        return seconds, self._events(stored, removed)

    def heartbeat(self, now: float) -> ReplicaHeartbeat:
        return ReplicaHeartbeat.model_construct(
            replica=self.name,
            model="m",
            state="ready",
            sent_at=now,
            num_running=len(self.running),
            num_waiting=len(self.waiting),
            waiting_tokens=sum(job.arrival.num_tokens for job in self.waiting),
            prefill_tokens=sum(job.to_compute for job in self.running),
            max_running=self.size.max_running,
            max_waiting=self.size.max_waiting,
            max_waiting_tokens=self.size.max_waiting_tokens,
            kv_epoch="simulated",
            kv_next_seq=self.seq,
            prefill_tokens_per_second=self._measured.per_second,
            requests_per_second=self._requests.read(self.num_finished, now),
            finished_requests_total=self.num_finished,
            generation_tokens_total=self.num_written,
        )

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.size.max_running:
            job = self.waiting.popleft()
            hit = 0
            usable = (job.arrival.num_tokens - 1) // BLOCK
            for block in job.arrival.chain[:usable]:
                if block not in self._cache:
                    break
                hit += 1
            for block in reversed(job.arrival.chain[:hit]):
                self._cache.move_to_end(block)  # the head is evicted last
            job.cached_tokens = hit * BLOCK
            job.to_compute = job.arrival.num_tokens - job.cached_tokens
            self.running.append(job)

    def _chunks(self, num_decoding: int) -> list[tuple[Job, int]]:
        speed = self.speed
        room = speed.longest_chunk
        if num_decoding:
            left = speed.longest_step_seconds - speed.base_seconds - speed.decode_seconds * num_decoding
            room = max(16, min(room, int(left / speed.prompt_token_seconds)))
        chunks: list[tuple[Job, int]] = []
        for job in self.running:
            if job.to_compute and room:
                count = min(job.to_compute, room)
                chunks.append((job, count))
                room -= count
        return chunks

    def _store(self, chain: Sequence[int], stored: list[int], removed: list[int]) -> None:
        for block in reversed(chain):
            if block not in self._cache:
                stored.append(block)
            self._cache[block] = None
            self._cache.move_to_end(block)
        while len(self._cache) > self.size.kv_blocks:
            removed.append(self._cache.popitem(last=False)[0])

    def _events(self, stored: list[int], removed: list[int]) -> KvEvents | None:
        changes: list[KvChange] = []
        if not self.seq:
            changes.append(KvChange(kind="cleared"))
        for kind, blocks in (("stored", stored), ("removed", removed)):
            if blocks:
                hashes = tuple(f"{block:016x}" for block in blocks)
                changes.append(KvChange.model_construct(kind=kind, block_hashes=hashes))
        if not changes:
            return None
        events = KvEvents.model_construct(
            replica=self.name, epoch="simulated", seq=self.seq, block_size=BLOCK, changes=tuple(changes)
        )
        self.seq += 1
        return events
