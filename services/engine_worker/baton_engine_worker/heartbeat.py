"""What routers hear of this replica: state, stage, queue and KV, every quarter second and at each change.

Runs in the event loop from the process's start: loading happens in the engine's thread, so a starting replica
is heard of too.
"""

from __future__ import annotations

import asyncio
import logging

from baton_common.errors import BusError
from baton_common.node import Node
from baton_contracts import subjects
from baton_contracts.heartbeats import (
    REPLICA_INTERVAL_SECONDS,
    ReplicaHeartbeat,
    Speculation,
    State,
    StepProfile,
)
from baton_contracts.identifiers import subject_token
from baton_engine import EngineStats
from baton_engine_worker.engine_face import Engine
from baton_engine_worker.kv_publisher import KvPublisher
from baton_engine_worker.rates import RecentSpeed, SlidingRate

log = logging.getLogger(__name__)

TICK_SECONDS = 0.1


class Heartbeat:
    def __init__(
        self,
        node: Node,
        engine: Engine,
        kv_events: KvPublisher,
        model: str,
        *,
        max_running: int,
        max_waiting: int,
        max_waiting_tokens: int = 0,
    ) -> None:
        self._node = node
        self._engine = engine
        self._kv_events = kv_events
        self._model = model
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._max_waiting_tokens = max_waiting_tokens
        self._subject = subjects.replica(subject_token(model), node.instance)
        self._changed = asyncio.Event()
        self._tokens = SlidingRate()
        self._requests = SlidingRate()
        self._prefill = RecentSpeed()
        self._warm_up_tokens = 0, 0
        self._counting_since = 0.0
        self.stage = "starting"
        self.num_finished = 0

    def count_from_here(self) -> None:
        """What was computed up to now was nobody's question."""
        stats = self._engine.stats()
        self._warm_up_tokens = stats.prompt_tokens_total, stats.generation_tokens_total
        self._counting_since = self._node.clock.wall()

    def set_stage(self, stage: str) -> None:
        self.stage = stage
        self._changed.set()

    def note_finished(self) -> None:
        self.num_finished += 1

    def note_prefill(self, num_tokens: int, seconds: float) -> None:
        """So many tokens of a prompt were computed in steps of that length together."""
        self._prefill.note(num_tokens, seconds)

    def state(self) -> State:
        if self._engine.state in ("failed", "closed") or self._node.state == "gone":
            return "gone"
        if self._node.state == "ready" and self._engine.state == "ready":
            return "ready"
        return "draining" if self._node.state == "draining" else "starting"

    def now(self) -> ReplicaHeartbeat:
        state = self.state()
        base = ReplicaHeartbeat(
            replica=self._node.instance,
            model=self._model,
            state=state,
            stage=self.stage if state == "starting" else "",
            sent_at=self._node.clock.wall(),
            max_running=self._max_running,
            max_waiting=self._max_waiting,
            max_waiting_tokens=self._max_waiting_tokens,
            finished_requests_total=self.num_finished,
        )
        if self._engine.state != "ready":
            return base
        return base.model_copy(update=self._load(self._engine.stats()))

    def _load(self, stats: EngineStats) -> dict[str, object]:
        now = self._node.clock.monotonic()
        return {
            "num_running": stats.running,
            "num_waiting": stats.waiting,
            "waiting_tokens": stats.waiting_tokens,
            "prefill_tokens": stats.prefill_tokens,
            "prefill_tokens_per_second": round(self._prefill.per_second, 3),
            "kv_usage": stats.kv_usage,
            "kv_blocks_total": stats.kv_blocks_total,
            "kv_blocks_held": stats.kv_blocks_held,
            "context_length": self._engine.max_model_len,
            "kv_epoch": self._kv_events.epoch,
            "kv_next_seq": self._kv_events.next_seq,
            "counting_since": self._counting_since,
            "prompt_tokens_total": stats.prompt_tokens_total - self._warm_up_tokens[0],
            "generation_tokens_total": stats.generation_tokens_total - self._warm_up_tokens[1],
            "preemptions_total": stats.preemptions_total,
            "prefix_hit_tokens_total": stats.prefix_hit_tokens_total,
            "step_profile": _step_profile(stats),
            "speculation": Speculation(
                drafts_total=stats.speculation.num_drafts,
                draft_tokens_total=stats.speculation.num_draft_tokens,
                accepted_tokens_total=stats.speculation.num_accepted_tokens,
            ),
            "tokens_per_second": round(self._tokens.read(stats.generation_tokens_total, now), 3),
            "requests_per_second": round(self._requests.read(self.num_finished, now), 4),
        }

    async def send(self) -> None:
        try:
            await self._node.bus.publish(self._subject, self.now().encode())
        except BusError as error:
            log.debug("heartbeat not sent: %s", error)

    async def run(self) -> None:
        """For the process's lifetime. The node's own changes of state are looked for at each tick."""
        loop = asyncio.get_running_loop()
        while True:
            told, due = self.state(), loop.time() + self._node.clock.seconds_to_beat(REPLICA_INTERVAL_SECONDS)
            await self.send()
            while self.state() == told and not self._changed.is_set() and loop.time() < due:
                await self._tick(due - loop.time())
            self._changed.clear()

    async def _tick(self, most_seconds: float) -> None:
        try:
            async with asyncio.timeout(min(TICK_SECONDS, most_seconds)):
                await self._changed.wait()
        except TimeoutError:
            return


def _step_profile(stats: EngineStats) -> StepProfile:
    seen = stats.step_profile
    return StepProfile(
        draft_seconds=round(seen.draft_seconds, 6),
        schedule_seconds=round(seen.schedule_seconds, 6),
        model_seconds=round(seen.model_seconds, 6),
        sample_seconds=round(seen.sample_seconds, 6),
        emit_seconds=round(seen.emit_seconds, 6),
        steps_total=seen.num_steps,
        tokens_total=seen.num_tokens,
    )
