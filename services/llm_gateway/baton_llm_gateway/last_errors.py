"""The errors that end a request here, and which of several the client gets. Pure."""

from __future__ import annotations

from baton_contracts.errors import ErrorBody, ErrorCode
from baton_llm_gateway.attempt import Attempt


def too_late() -> ErrorBody:
    text = "The request was not answered before its deadline."
    return ErrorBody(code="deadline_exceeded", message=text, stop="llm_gateway")


def lost_sight(replica: str) -> ErrorBody:
    text = f"Replica {replica} gave the request up: it lost sight of those who wait for the answer."
    return ErrorBody(code="stop_lost", message=text, stop="engine_worker")


def final_error(attempt: Attempt, original: ErrorBody, broke_off: Attempt | None) -> ErrorBody:
    """What the client gets: before the first token the first error; after it that the answer broke off, and
    why the last replica that had it did not go on."""
    if not attempt.has_content:
        return original
    error = (broke_off and broke_off.error) or original
    code: ErrorCode = "stop_lost" if error.code == "stop_lost" else "upstream_error"
    count = attempt.num_resumed + (attempt.num_tokens or attempt.num_pieces)
    text = f"The answer broke off after {count} tokens and can't go on: {error.message}"
    return ErrorBody(code=code, message=text, stop=error.stop)
