"""Why nobody can take a request, and when another try makes sense. Pure.

no replica of the model is ready            no_ready_replica  (says which stage a starting one is in)
all ready ones are at their bound           queue_full
all that were asked lack KV memory for it   kv_exhausted
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from baton_contracts.errors import ErrorBody, ErrorCode
from baton_contracts.heartbeats import ReplicaHeartbeat

MIN_SECONDS = 1.0
MAX_SECONDS = 30.0
JITTER = 0.2
STARTING_SECONDS = 3.0
ABSENT_SECONDS = 10.0
UNMEASURED_SECONDS_A_REQUEST = 1.0
"""Before a replica has finished anything there is no rate to go by."""

Random = Callable[[], float]
"""Uniform in [0, 1)."""

_BUSY: tuple[ErrorCode, ...] = ("queue_full", "kv_exhausted")


def retry_after(seconds: float, draw: Random = random.random) -> float:
    """`seconds` ± 20 %, so that those who were refused together don't come back together; 1 to 30."""
    jittered = seconds * (1 + JITTER * (2 * draw() - 1))
    return round(min(MAX_SECONDS, max(MIN_SECONDS, jittered)), 2)


def seconds_to_work_off(replicas: Sequence[ReplicaHeartbeat]) -> float:
    """Until what waits now has been served, at the measured rate of all replicas together: requests, or their
    tokens where those take longer (few and long ones)."""
    waiting = max(1, sum(replica.num_waiting for replica in replicas))
    rate = sum(replica.requests_per_second for replica in replicas)
    seconds = waiting / rate if rate > 0 else waiting * UNMEASURED_SECONDS_A_REQUEST
    tokens = sum(replica.waiting_tokens + replica.prefill_tokens for replica in replicas)
    speed = sum(replica.prefill_tokens_per_second for replica in replicas)
    return max(seconds, tokens / speed) if speed > 0 else seconds


def nobody_takes(
    model: str,
    known: Sequence[ReplicaHeartbeat],
    refusals: Sequence[ErrorBody],
    *,
    num_ready: int,
    draw: Random = random.random,
) -> ErrorBody:
    """`known`: all replicas of the model; `refusals`: what those that were asked said; `num_ready`: how many
    could have been asked, full ones included."""
    if num_ready == 0 and not any(refusal.code in _BUSY for refusal in refusals):
        return _none_ready(model, known, draw)
    ready = [replica for replica in known if replica.state == "ready"]
    wait = retry_after(seconds_to_work_off(ready), draw)
    if refusals and all(refusal.code == "kv_exhausted" for refusal in refusals):
        message = refusals[-1].message
        return ErrorBody(
            code="kv_exhausted", message=message, stop="inference_router", retry_after_seconds=wait
        )
    waiting = sum(replica.num_waiting for replica in ready)
    tokens = sum(replica.waiting_tokens for replica in ready)
    message = (
        f"Every replica of {model} is full ({waiting} requests of {tokens} tokens are waiting). "
        f"Try again in {wait:.0f} s."
    )
    return ErrorBody(code="queue_full", message=message, stop="inference_router", retry_after_seconds=wait)


def _none_ready(model: str, known: Sequence[ReplicaHeartbeat], draw: Random) -> ErrorBody:
    starting = next((replica for replica in known if replica.state == "starting"), None)
    draining = any(replica.state == "draining" for replica in known)
    if starting:
        stage = f" (stage: {starting.stage})" if starting.stage else ""
        why, seconds = f"one is starting{stage}", STARTING_SECONDS
    elif draining:
        why, seconds = "one is draining", STARTING_SECONDS
    elif any(replica.state == "ready" for replica in known):
        why, seconds = "the one that was does not answer or has failed on this request", STARTING_SECONDS
    else:
        why, seconds = "none is running", ABSENT_SECONDS
    return ErrorBody(
        code="no_ready_replica",
        message=f"No replica of {model} is ready: {why}. Try again, or start one.",
        stop="inference_router",
        retry_after_seconds=retry_after(seconds, draw),
    )
