"""Who waits for this core goes first: the books do their work a few rows at a time.

A woken process waits for the one that runs on its core, up to 3 ms on Linux, even beside an idle core where
that one is halted (in virtual machines): the rows of a tenth of a second in one go made the slowest answers.
Whoever gives way often gets little of a machine that is busy throughout: with many rows, or with somebody who
waits for the books, they give way to nobody.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

ROWS_AT_A_TIME = 8
"""A tenth to a quarter of a millisecond."""
MANY_ROWS = 96
"""At once: the machine is busy, or the books are behind."""


class Courtesy:
    def __init__(self, is_asked: Callable[[], bool], give_way: Callable[[], object] = os.sched_yield) -> None:
        self._is_asked = is_asked
        self._give_way = give_way

    def few_at_a_time(self, rows: Sequence[T]) -> Iterator[Sequence[T]]:
        """All of them, in order. May be used in any thread."""
        size = len(rows) if len(rows) >= MANY_ROWS else ROWS_AT_A_TIME
        for start in range(0, len(rows), size):
            if len(rows) < MANY_ROWS and not self._is_asked():
                self._give_way()
            yield rows[start : start + size]
