"""What is kept for a time only: now and then the old responses go. Knows nothing of the queue."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from baton_after_answer.books import BooksAway, RowRefused
from baton_common.clock import Clock

log = logging.getLogger(__name__)

LOOK_SECONDS = 3600.0
_DAY_SECONDS = 86400.0


async def forget_old(
    forget: Callable[[float], Awaitable[int]],
    *,
    days: float,
    clock: Clock,
    sleep: Callable[[float], Awaitable[object]],
) -> None:
    """Runs for ever. `forget` is given a Unix time and returns how many it forgot."""
    while True:
        try:
            if gone := await forget(clock.wall() - days * _DAY_SECONDS):
                log.info("%d responses older than %g days are gone", gone, days)
        except (BooksAway, RowRefused) as error:
            log.warning("old responses stay for now: %s", error)
        await sleep(LOOK_SECONDS)
