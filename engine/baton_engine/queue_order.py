"""Who comes before whom: in the waiting queue, in the plan, and last first when blocks run out.

An order is a key that never changes while a request lives, so queues stay sorted by themselves. Ageing fits
that: if a request gains one level of priority for each `ageing_seconds` of waiting, then at any time

    priority_a - waited_a / ageing < priority_b - waited_b / ageing
    ⇔ queued_a + priority_a × ageing < queued_b + priority_b × ageing        (now falls out)

so a queued request is overtaken only by what arrives within (levels between) × ageing_seconds of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from baton_engine.request import Request

SchedulingPolicy = Literal["fcfs", "priority"]
SortKey = tuple[float, int]
QueueOrder = Callable[[Request], SortKey]

AGEING_SECONDS = 30.0


def first_come(request: Request) -> SortKey:
    return (0.0, request.arrival)


def by_priority(ageing_seconds: float = AGEING_SECONDS) -> QueueOrder:
    """A lower number first; equals in the order of their arrival."""

    def key(request: Request) -> SortKey:
        return (request.queued_at + request.priority * ageing_seconds, request.arrival)

    return key


def queue_order(policy: SchedulingPolicy, ageing_seconds: float) -> QueueOrder:
    return first_come if policy == "fcfs" else by_priority(ageing_seconds)
