"""The engine's words in the contract's: refusals, failures, usage, timings. Pure. Back goes `asking`."""

from __future__ import annotations

from baton_contracts import frames
from baton_contracts.errors import ErrorBody, ErrorCode
from baton_engine import (
    EngineError,
    RequestFailure,
    RequestRejected,
    Timings,
    Usage,
)

_CODES: dict[str, ErrorCode] = {
    "context_length_exceeded": "context_length_exceeded",
    "queue_full": "queue_full",
    "kv_capacity_exceeded": "kv_exhausted",
    "duplicate_request": "conflict",
}

_CLIENTS_NAMES = {"logprobs": "top_logprobs", "prompt": "messages"}
"""Parameters of the engine that clients know by another name."""


def refusal(error: EngineError, instance: str) -> ErrorBody:
    """Why the engine did not take the request: for the router, and for a client whose fault it is."""
    if not isinstance(error, RequestRejected):
        message = f"{instance} takes no requests now: {error}"
        return ErrorBody(code="no_ready_replica", message=message, stop="engine_worker")
    code = _CODES.get(error.code, "invalid_value")
    param = _CLIENTS_NAMES.get(error.param or "", error.param)
    return ErrorBody(code=code, message=error.message, param=param, stop="engine_worker")


def failure(error: RequestFailure | None) -> ErrorBody:
    """An error that came after the acceptance; another replica may do better."""
    what = f"{error.code}: {error.message}" if error else "no reason given"
    message = f"The engine failed on this request ({what})."
    return ErrorBody(code="stop_failed", message=message, stop="engine_worker")


def shutting_down(instance: str) -> ErrorBody:
    message = f"{instance} ends before the answer does."
    return ErrorBody(code="shutting_down", message=message, stop="engine_worker")


def lost_sight(instance: str) -> ErrorBody:
    message = f"{instance} gave the request up: it lost sight of those who wait for the answer."
    return ErrorBody(code="stop_lost", message=message, stop="engine_worker")


def usage(counted: Usage | None) -> frames.Usage:
    if counted is None:
        return frames.Usage()
    return frames.Usage(
        prompt_tokens=counted.prompt_tokens,
        cached_tokens=counted.cached_tokens,
        completion_tokens=counted.completion_tokens,
        reasoning_tokens=counted.reasoning_tokens,
    )


def timings(seen: Timings | None) -> frames.Timings | None:
    if seen is None:
        return None
    return frames.Timings(
        queued_at=seen.queued_at,
        scheduled_at=seen.scheduled_at,
        first_token_at=seen.first_token_at,
        finished_at=seen.finished_at,
    )
