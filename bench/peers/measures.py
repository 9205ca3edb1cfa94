"""What is measured: throughput by concurrency, a shared prefix, a long prompt beside streams.

Knows no server: each measurement takes a target. Prompts are random token ids, different in each measurement,
so that only the prefix measurement can hit a prefix cache.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from bench.peers.load_client import Answer, Target, complete

PROMPT_TOKENS = 512
OUTPUT_TOKENS = 128
FIRST_ID, LAST_ID = 1_000, 40_000
"""Plain words of the vocabulary: no special token."""

PREFIX_TOKENS = 1_024
SUFFIX_TOKENS = 32
LONG_TOKENS = 2_000
STREAMS = 4
STREAM_TOKENS = 384
TOKENS_BEFORE_LONG = 8


@dataclass(frozen=True)
class Plan:
    """requests: how many at each concurrency. repeats: of the prefix and of the long-prompt measurement."""

    requests: dict[int, int]
    repeats: int


QUICK = Plan(requests={1: 4, 8: 16}, repeats=1)
FULL = Plan(requests={1: 8, 4: 12, 8: 24, 16: 32, 32: 64}, repeats=3)


@dataclass(frozen=True)
class Throughput:
    concurrency: int
    output_tps: float
    ttft_p50_ms: float
    tpot_p50_ms: float
    requests: int


@dataclass(frozen=True)
class Measured:
    rows: list[Throughput]
    prefix: dict[str, float]
    gap: dict[str, float]

    def as_data(self) -> dict[str, Any]:
        return asdict(self)


def random_prompt(rng: random.Random, length: int) -> list[int]:
    return [rng.randrange(FIRST_ID, LAST_ID) for _ in range(length)]


async def measure(target: Target, plan: Plan, seed: int) -> Measured:
    rng = random.Random(seed)  # noqa: S311 - the same prompts for each server
    await _warm_up(target, rng, max(plan.requests))
    rows = [await _throughput(target, rng, width, count) for width, count in plan.requests.items()]
    prefix = await _prefix(target, rng, plan.repeats)
    gap = await _gap(target, rng, plan.repeats)
    return Measured(rows, prefix, gap)


async def _warm_up(target: Target, rng: random.Random, width: int) -> None:
    """The shapes to come, once: servers compile or allocate at their first sight."""
    await complete(target, random_prompt(rng, PROMPT_TOKENS), 16)
    await asyncio.gather(*(complete(target, random_prompt(rng, PROMPT_TOKENS), 16) for _ in range(width)))


async def _throughput(target: Target, rng: random.Random, width: int, count: int) -> Throughput:
    """A closed loop: `width` clients, each sends its next request when the last has ended."""
    prompts = iter([random_prompt(rng, PROMPT_TOKENS) for _ in range(count)])
    started = time.perf_counter()
    answers = [
        answer
        for part in await asyncio.gather(*(_client(target, prompts) for _ in range(width)))
        for answer in part
    ]
    seconds = time.perf_counter() - started
    return Throughput(
        concurrency=width,
        output_tps=round(sum(answer.num_tokens for answer in answers) / seconds, 1),
        ttft_p50_ms=_milliseconds(statistics.median(answer.ttft for answer in answers)),
        tpot_p50_ms=_milliseconds(statistics.median(answer.tpot for answer in answers)),
        requests=count,
    )


async def _client(target: Target, prompts: Iterator[list[int]]) -> list[Answer]:
    return [await complete(target, prompt, OUTPUT_TOKENS) for prompt in prompts]


async def _prefix(target: Target, rng: random.Random, repeats: int) -> dict[str, float]:
    """Time to the first token: a new prefix, then the same prefix with another end."""
    cold: list[float] = []
    warm: list[float] = []
    for _ in range(repeats):
        prefix = random_prompt(rng, PREFIX_TOKENS)
        for times in (cold, warm):
            answer = await complete(target, prefix + random_prompt(rng, SUFFIX_TOKENS), 4)
            times.append(answer.ttft)
    cold_ms, warm_ms = _milliseconds(statistics.median(cold)), _milliseconds(statistics.median(warm))
    return {
        "cold_ttft_p50_ms": cold_ms,
        "warm_ttft_p50_ms": warm_ms,
        "warm_over_cold": round(warm_ms / cold_ms, 3),
    }


async def _gap(target: Target, rng: random.Random, repeats: int) -> dict[str, float]:
    gaps: list[float] = []
    ttfts: list[float] = []
    for _ in range(repeats):
        gap, ttft = await _one_gap(target, rng)
        gaps.append(gap)
        ttfts.append(ttft)
    return {
        "longest_gap_p50_ms": _milliseconds(statistics.median(gaps)),
        "long_prompt_ttft_p50_ms": _milliseconds(statistics.median(ttfts)),
    }


async def _one_gap(target: Target, rng: random.Random) -> tuple[float, float]:
    """The longest pause of the streams from the long prompt's arrival on, and that prompt's first token."""
    counts = [0] * STREAMS
    all_stream = asyncio.Event()

    def count(stream: int) -> None:
        counts[stream] += 1
        if min(counts) >= TOKENS_BEFORE_LONG:
            all_stream.set()

    streams = [
        asyncio.create_task(
            complete(
                target, random_prompt(rng, PROMPT_TOKENS), STREAM_TOKENS, lambda stream=stream: count(stream)
            )
        )
        for stream in range(STREAMS)
    ]
    waiting = asyncio.create_task(all_stream.wait())
    await asyncio.wait([waiting, *streams], return_when=asyncio.FIRST_COMPLETED)
    long = await complete(target, random_prompt(rng, LONG_TOKENS), 4)
    answers = await asyncio.gather(*streams)
    waiting.cancel()
    return max(_longest_pause(answer, long.sent, long.arrivals[0]) for answer in answers), long.ttft


def _longest_pause(answer: Answer, start: float, end: float) -> float:
    """Of the pauses that overlap [start, end]."""
    pauses = [later - sooner for sooner, later in pairwise(answer.arrivals) if later > start and sooner < end]
    return max(pauses, default=0.0)


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 1)
