"""How much longer everything takes on a machine that several use: a factor, pure, the same for each policy.

Replicas that share cores slow each other down, and neighbours come and go: most of what a small machine's
p99 shows, and so what a way to choose must not make worse.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Callable
from itertools import accumulate, cycle, islice

Slowness = Callable[[float, int], float]
"""Seconds since the start, replicas at work → factor of a step's time."""

ALONE_SECONDS = 10.0
WITH_NEIGHBOURS_SECONDS = 5.0
_NUM_CHANGES = 2000


def own_cores(_now: float, _busy: int) -> float:
    return 1.0


def shared_cores(cores: int, neighbours: float, seed: int) -> Slowness:
    """`neighbours`: the factor while they work; they come at random, for some seconds."""
    chance = random.Random(seed)  # noqa: S311  # the same neighbours for every policy
    means = islice(cycle((ALONE_SECONDS, WITH_NEIGHBOURS_SECONDS)), _NUM_CHANGES)
    changes = list(accumulate(chance.expovariate(1 / mean) for mean in means))

    def slowness(now: float, busy: int) -> float:
        disturbed = bisect(changes, now) % 2
        return max(1.0, busy / cores) * (neighbours if disturbed else 1.0)

    return slowness
