"""What is measured of a gateway: latency of one question at a time, and how much it carries."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from bench.gateway.load import Answer, Place, run_load
from bench.gateway.systems import PACED, PACED_MS, Running
from bench.gateway.upstream import NUM_CHUNKS

WARM_UP = 60
MANY = 50
RAMP_SECONDS = 2.0
"""Until all the open streams are there."""


@dataclass(frozen=True)
class Plan:
    single: int
    """Questions one at a time."""
    seconds: float
    """Of each measurement at 50 at once."""
    open_streams: int


FULL = Plan(single=2_000, seconds=8.0, open_streams=500)
QUICK = Plan(single=600, seconds=4.0, open_streams=500)
"""Of 600 the p99 is the sixth slowest; of 200 it was the second, and chance."""


@dataclass(frozen=True)
class Row:
    """Milliseconds and megabytes; of the upstream itself, `added` is its own time."""

    system: str
    added_p50_ms: float
    added_p99_ms: float
    requests_per_s: float
    requests_p50_ms: float
    streams_per_s: float
    stream_ttft_ms: float
    single_ttft_ms: float
    """Of one stream at a time."""
    events_per_stream: float
    """How many events a client of the instant streams gets: what came together may be sent on together."""
    memory_mb: float
    paced_streams: int
    paced_longest_gap_ms: float
    """Of so many open streams with a chunk every 100 ms."""
    paced_events_per_stream: float
    paced_memory_mb: float


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def measure(system: Running, plan: Plan, straight: Row | None) -> Row:
    """`straight`: the upstream's own row, whose times are not the gateway's. Raises LoadFailed."""
    place = system.place
    await run_load(place, width=4, stream=False, going_on=_count(WARM_UP), first_number=1_000)
    await run_load(place, width=4, stream=True, going_on=_count(WARM_UP), first_number=2_000)
    single = await run_load(place, width=1, stream=False, going_on=_count(plan.single), first_number=3_000)
    single_streams = await run_load(
        place, width=1, stream=True, going_on=_count(plan.single // 4), first_number=9_000
    )
    times = [(answer.ended - answer.sent) * 1000 for answer in single]
    requests, request_rate = await _at_once(place, plan, stream=False, first_number=100_000)
    streams, stream_rate = await _at_once(place, plan, stream=True, first_number=1_000_000)
    memory = system.memory_mb()
    paced, paced_memory = await _open_streams(system, plan)
    base50, base99 = (straight.added_p50_ms, straight.added_p99_ms) if straight else (0.0, 0.0)
    return Row(
        system=system.name,
        added_p50_ms=round(quantile(times, 0.5) - base50, 3),
        added_p99_ms=round(quantile(times, 0.99) - base99, 3),
        requests_per_s=round(request_rate, 1),
        requests_p50_ms=round(quantile([(each.ended - each.sent) * 1000 for each in requests], 0.5), 2),
        streams_per_s=round(stream_rate, 1),
        stream_ttft_ms=round(quantile([(each.first - each.sent) * 1000 for each in streams], 0.5), 2),
        single_ttft_ms=round(quantile([(each.first - each.sent) * 1000 for each in single_streams], 0.5), 2),
        events_per_stream=_mean_events(streams),
        memory_mb=round(memory, 1),
        paced_streams=len(paced),
        paced_longest_gap_ms=round(max((each.longest_gap for each in paced), default=0.0) * 1000, 1),
        paced_events_per_stream=_mean_events(paced),
        paced_memory_mb=round(paced_memory, 1),
    )


def _count(most: int) -> Callable[[int], bool]:
    return lambda asked: asked < most


async def _at_once(
    place: Place, plan: Plan, *, stream: bool, first_number: int
) -> tuple[list[Answer], float]:
    started = time.perf_counter()
    ends = started + plan.seconds
    answers = await run_load(
        place,
        width=MANY,
        stream=stream,
        going_on=lambda _: time.perf_counter() < ends,
        first_number=first_number,
    )
    return answers, len(answers) / (max(each.ended for each in answers) - started)


async def _open_streams(system: Running, plan: Plan) -> tuple[list[Answer], float]:
    """All open together, a chunk every PACED_MS: none may stall, and memory must not grow with what flows."""
    place = replace(system.place, model=PACED)
    count = plan.open_streams
    answers = await run_load(
        place,
        width=count,
        stream=True,
        going_on=_count(count),
        first_number=5_000_000,
        ramp_seconds=RAMP_SECONDS,
    )
    assert PACED_MS * NUM_CHUNKS < 60_000
    return answers, system.memory_mb()


def _mean_events(answers: list[Answer]) -> float:
    return round(sum(each.num_events for each in answers) / max(1, len(answers)), 1)
