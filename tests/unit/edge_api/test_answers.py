from __future__ import annotations

import json
from typing import get_args

import pytest

from baton_contracts.errors import ErrorBody, ErrorCode
from baton_contracts.openai_answers import ErrorAnswer
from baton_edge_api.answers import error_answer, error_event, retry_headers

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    409: "invalid_request_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    499: "invalid_request_error",
    500: "server_error",
    502: "server_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}


@pytest.mark.parametrize("code", get_args(ErrorCode))
def test_every_code_becomes_the_error_object(code: ErrorCode) -> None:
    answer = error_answer(ErrorBody(code=code, message="So.", param="p", stop="llm_gateway"))
    body = json.loads(answer.body)
    assert body == {"error": {"message": "So.", "type": TYPES[answer.status], "param": "p", "code": code}}
    ErrorAnswer.model_validate(body)
    headers = dict(answer.all_headers())
    assert headers[b"x-baton-stop"] == b"llm_gateway"
    assert (b"retry-after" in headers) == (answer.status in (429, 503))
    assert (b"www-authenticate" in headers) == (answer.status == 401)


def test_all_four_keys_are_there_when_there_is_nothing_to_say() -> None:
    body = json.loads(error_answer(ErrorBody(code="internal_error", message="x")).body)
    assert body["error"] == {"message": "x", "type": "server_error", "param": None, "code": "internal_error"}


@pytest.mark.parametrize(
    ("seconds", "whole", "millis"),
    [
        (None, b"1", b"1000"),
        (0, b"1", b"1"),
        (0.25, b"1", b"250"),
        (1.0, b"1", b"1000"),
        (2.1, b"3", b"2100"),
    ],
)
def test_retry_after_is_whole_seconds_and_never_zero(
    seconds: float | None, whole: bytes, millis: bytes
) -> None:
    assert retry_headers(seconds) == [(b"retry-after", whole), (b"retry-after-ms", millis)]


def test_a_spent_budget_is_not_to_be_retried() -> None:
    headers = dict(error_answer(ErrorBody(code="insufficient_quota", message="x")).headers)
    assert headers[b"x-should-retry"] == b"false"


def test_an_error_event() -> None:
    assert error_event(ErrorBody(code="stop_lost", message="Gone.", stop="llm_gateway")) == (
        b'data: {"error":{"message":"Gone.","type":"server_error","param":null,"code":"stop_lost"}}\n\n'
    )
