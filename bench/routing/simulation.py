"""One policy, one traffic, so many simulated replicas: events in order of time, without waiting for it.

The router's own table and index are used, fed by heartbeats four times a second and KV events of each step.
"""

from __future__ import annotations

import heapq
import itertools
import statistics
import time
from dataclasses import dataclass, field

from baton_common.clock import Clock
from baton_contracts.handoffs import Ack
from baton_contracts.heartbeats import REPLICA_INTERVAL_SECONDS
from baton_inference_router.prefix_index import PrefixIndex
from baton_inference_router.replicas import ReplicaTable
from baton_inference_router.scoring import Asked
from bench.routing.policies import Pick
from bench.routing.shared_machine import Slowness, own_cores
from bench.routing.simulated_replica import Job, SimulatedReplica
from bench.routing.traffic import BLOCK, Arrival

Event = tuple[float, int, str, object]


@dataclass
class Outcome:
    """Of one run, simulated or real."""

    ttft_seconds: list[float] = field(default_factory=list[float])
    prompt_tokens: int = 0
    cached_tokens: int = 0
    refused: int = 0
    work_of_replicas: list[float] = field(default_factory=list[float])
    choosing_seconds: list[float] = field(default_factory=list[float])

    def row(self) -> dict[str, float | int]:
        served = sorted(self.ttft_seconds)
        mean = statistics.fmean(self.work_of_replicas)
        return {
            "requests": len(served) + self.refused,
            "ttft_p50_ms": round(1000 * quantile(served, 0.5), 1),
            "ttft_p99_ms": round(1000 * quantile(served, 0.99), 1),
            "hit_rate": round(self.cached_tokens / max(1, self.prompt_tokens), 3),
            "skew": round(max(self.work_of_replicas) / mean, 2) if mean else 0.0,
            "refused": self.refused,
            "choosing_us": round(1e6 * statistics.fmean(self.choosing_seconds or [0.0])),
        }


def quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


class Simulation:
    def __init__(self, pick: Pick, num_replicas: int, slowness: Slowness = own_cores) -> None:
        self._pick = pick
        self._slowness = slowness
        self._now = 0.0
        clock = Clock(wall=lambda: self._now, monotonic=lambda: self._now)
        self._table = ReplicaTable(clock, stale_seconds=2.0)
        self._index = PrefixIndex(clock, max_blocks=4_000_000)
        self._replicas = {
            f"replica-{number}": SimulatedReplica(f"replica-{number}") for number in range(num_replicas)
        }
        self._events: list[Event] = []
        self._order = itertools.count()
        self._stepping: set[str] = set()
        self.outcome = Outcome()

    def run(self, arrivals: list[Arrival]) -> Outcome:
        jobs = [Job(arrival) for arrival in arrivals]
        for number, replica in enumerate(self._replicas.values()):
            phase = REPLICA_INTERVAL_SECONDS * number / len(self._replicas)
            self._hear(replica)
            self._later(phase, "beat", replica)
        for job in jobs:
            self._later(1.0 + job.arrival.at, "arrive", job)
        waiting = len(jobs)
        while self._events and (waiting or self._stepping):
            self._now, _, kind, what = heapq.heappop(self._events)
            if kind == "arrive" and isinstance(what, Job):
                waiting -= 1
                self._route(what)
            elif isinstance(what, SimulatedReplica):
                self._beat(what) if kind == "beat" else self._step_done(what)
        self._sum_up(jobs)
        return self.outcome

    def _later(self, seconds: float, kind: str, what: object) -> None:
        heapq.heappush(self._events, (self._now + seconds, next(self._order), kind, what))

    def _beat(self, replica: SimulatedReplica) -> None:
        self._hear(replica)
        self._later(REPLICA_INTERVAL_SECONDS, "beat", replica)

    def _hear(self, replica: SimulatedReplica) -> None:
        beat = replica.heartbeat(self._now)
        self._table.on_heartbeat(beat)
        self._index.heard(beat)

    def _route(self, job: Job) -> None:
        arrival = job.arrival
        started = time.thread_time()
        candidates = self._table.candidates("m")
        holders = self._index.holders((each.replica for each in candidates), arrival.chain)
        cached = {replica: BLOCK * blocks for replica, blocks in holders.items()}
        chosen = self._pick(candidates, Asked(arrival.num_tokens), cached)
        self.outcome.choosing_seconds.append(time.thread_time() - started)
        if chosen is None:
            self.outcome.refused += 1
            return
        replica = self._replicas[chosen.replica]
        seat = self._table.reserve(replica.name, arrival.num_tokens - cached.get(replica.name, 0))
        if not replica.accepts(job):
            seat.refuse(Ack(verdict="refused", instance=replica.name))
            self.outcome.refused += 1
            return
        self._index.expect(replica.name, arrival.chain)
        waiting, running = len(replica.waiting), len(replica.running)
        seat.accept(Ack(verdict="held", instance=replica.name, waiting=waiting, running=running))
        if replica.name not in self._stepping:
            self._begin_step(replica)

    def _begin_step(self, replica: SimulatedReplica) -> None:
        self._stepping.add(replica.name)
        seconds, events = replica.step(self._now, self._slowness(self._now, len(self._stepping)))
        if events:
            self._index.told(events)
        self._later(seconds, "step", replica)

    def _step_done(self, replica: SimulatedReplica) -> None:
        self._stepping.discard(replica.name)
        if not replica.is_idle:
            self._begin_step(replica)

    def _sum_up(self, jobs: list[Job]) -> None:
        outcome = self.outcome
        for job in jobs:
            if job.first_token_at is not None:
                outcome.ttft_seconds.append(job.first_token_at - 1.0 - job.arrival.at)
                outcome.prompt_tokens += job.arrival.num_tokens
                outcome.cached_tokens += job.cached_tokens
        outcome.work_of_replicas = [replica.busy_seconds for replica in self._replicas.values()]
