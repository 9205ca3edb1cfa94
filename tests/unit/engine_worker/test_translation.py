from __future__ import annotations

from typing import Any

import pytest

from baton_engine import (
    ContextLengthExceeded,
    EngineUnavailable,
    InvalidParameter,
    KVCapacityExceeded,
    QueueFull,
    RequestFailure,
)
from baton_engine.errors import DuplicateRequest
from baton_engine_worker import translation


@pytest.mark.parametrize(
    ("error", "code", "status", "param"),
    [
        (ContextLengthExceeded(900, 200, 1000), "context_length_exceeded", 400, "messages"),
        (InvalidParameter("stop", "stop is ''"), "invalid_value", 400, "stop"),
        (DuplicateRequest("x"), "conflict", 409, "request_id"),
        (QueueFull(64, 64, "requests"), "queue_full", 503, None),
        (KVCapacityExceeded(90, 64), "kv_exhausted", 503, "max_tokens"),
        (EngineUnavailable("failed", "The engine is failed."), "no_ready_replica", 503, None),
    ],
)
def test_every_refusal_has_its_code(error: Any, code: str, status: int, param: str | None) -> None:
    body = translation.refusal(error, "engine_worker-1")
    assert (body.code, body.status, body.param, body.stop) == (code, status, param, "engine_worker")


def test_a_context_refusal_says_both_numbers() -> None:
    message = translation.refusal(ContextLengthExceeded(900, 200, 1000), "w").message
    assert "900 in the prompt" in message
    assert "200 for the answer" in message


def test_a_failure_names_its_cause() -> None:
    body = translation.failure(RequestFailure("invalid_logits", "not a number"))
    assert (body.code, body.stop) == ("stop_failed", "engine_worker")
    assert "invalid_logits: not a number" in body.message
