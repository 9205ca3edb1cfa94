"""What follows a failed attempt. Pure.

the client is gone                          nothing more
content was sent without its token ids      nothing more: a second start would say things twice
the client's own fault (4xx)                nothing more
refused for want of a seat, other model     at once, with the other model (`auto` only, before content)
refused for want of a seat                  nothing more: the client gets reason and Retry-After; but an
                                            answer that has begun tries again while replicas are only full
the router does not answer                  nothing more: the client has waited long enough
the replica failed, stalled or vanished     elsewhere, a little later, while attempts are left: behind what
                                            was sent, or from the start if nothing was
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Literal

from baton_contracts.errors import ErrorBody, ErrorCode

BACKOFF_FLOOR_SECONDS = 0.05
BACKOFF_CEILING_SECONDS = 1.0

FULL: frozenset[ErrorCode] = frozenset({"queue_full", "kv_exhausted"})
NO_SEAT: frozenset[ErrorCode] = frozenset({"no_ready_replica", *FULL})
_TRANSIENT: frozenset[ErrorCode] = frozenset(
    {
        "internal_error",
        "stop_failed",
        "stop_lost",
        "stream_gap",
        "slow_consumer",
        "upstream_error",
        "stop_unresponsive",
        "shutting_down",
    }
)

Next = Literal["give_up", "retry", "other_model"]


def after_failure(
    error: ErrorBody,
    *,
    failures: int,
    max_attempts: int,
    has_content: bool,
    can_go_on: bool,
    is_gone: bool,
    has_other: bool,
) -> Next:
    """`failures` counts this one; `can_go_on`: all content is there as token ids; `has_other`: there is a
    model to fall back to that was not tried yet."""
    if is_gone or error.status < 500 or failures >= max_attempts:
        return "give_up"
    if has_content and not can_go_on:
        return "give_up"
    if (error.code, error.stop) == ("stop_unresponsive", "inference_router"):
        return "give_up"
    if error.code in NO_SEAT:
        if has_content:
            return "retry" if error.code in FULL else "give_up"
        return "other_model" if has_other else "give_up"
    return "retry" if error.code in _TRANSIENT else "give_up"


def backoff_seconds(failures: int, draw: Callable[[], float] = random.random) -> float:
    """Doubles with each failure, half of it jitter; never under the floor."""
    full = min(BACKOFF_CEILING_SECONDS, 2 * BACKOFF_FLOOR_SECONDS * 2 ** (failures - 1))
    return max(BACKOFF_FLOOR_SECONDS, full * (0.5 + 0.5 * draw()))
