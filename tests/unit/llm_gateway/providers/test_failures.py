"""What a server's failure means: for the client, and for the server."""

from __future__ import annotations

import json
import time
from email.utils import formatdate
from typing import Any

import pytest

from baton_common.routes import Target
from baton_llm_gateway.providers.failures import from_stream, refused, retry_after_seconds

TARGET = Target("there", "https://there.test/v1")


def body(**error: Any) -> bytes:
    return json.dumps({"error": error}).encode()


@pytest.mark.parametrize(
    ("status", "code", "counts", "elsewhere"),
    [
        (400, "invalid_request", False, False),
        (422, "invalid_request", False, False),
        (413, "request_too_large", False, False),
        (401, "upstream_error", False, True),
        (403, "upstream_error", False, True),
        (404, "upstream_error", False, True),
        (429, "rate_limit_exceeded", False, True),
        (408, "upstream_error", True, False),
        (302, "upstream_error", True, False),
        (500, "upstream_error", True, False),
        (503, "upstream_error", True, False),
    ],
)
def test_by_status(status: int, code: str, counts: bool, elsewhere: bool) -> None:
    failure = refused(TARGET, status, {}, body(message="so"))
    assert (failure.error.code, failure.counts, failure.elsewhere) == (code, counts, elsewhere)


def test_the_providers_words_reach_the_client_but_not_its_view_of_our_key() -> None:
    own = refused(TARGET, 400, {}, body(message="bad top_p", param="top_p", code="context_length_exceeded"))
    assert (own.error.code, own.error.message, own.error.param) == (
        "context_length_exceeded",
        "bad top_p",
        "top_p",
    )
    ours = refused(TARGET, 401, {}, body(message="Incorrect API key provided: sk-ab***yz"))
    assert "sk-" not in ours.error.message


@pytest.mark.parametrize("said", [b"", b"<html>", b"[]", b'{"error": 3}', b'{"detail": "x"}', b'"x"'])
def test_bodies_that_say_nothing(said: bytes) -> None:
    assert refused(TARGET, 500, {}, said).error.message == "there answered HTTP 500: no reason given"


def test_bodies_that_say_it_otherwise() -> None:
    assert refused(TARGET, 500, {}, b'{"error": "full"}').error.message.endswith("500: full")
    assert refused(TARGET, 400, {}, b'{"object": "error", "message": "odd"}').error.message == "odd"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "30"}, 30.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "7", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "1e9"}, 3600.0),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_seconds(headers) == seconds


def test_retry_after_as_a_date() -> None:
    seconds = retry_after_seconds({"retry-after": formatdate(time.time() + 60, usegmt=True)})
    assert seconds is not None
    assert 55 < seconds <= 60


def test_errors_in_a_stream() -> None:
    assert from_stream(TARGET, {"code": 429, "message": "x"}).error.code == "rate_limit_exceeded"
    assert from_stream(TARGET, {"code": 400, "message": "x"}).error.code == "invalid_request"
    assert from_stream(TARGET, {"type": "rate_limit_error"}).error.code == "rate_limit_exceeded"
    broke = from_stream(TARGET, {"code": "server_error", "message": "x"})
    assert (broke.error.code, broke.counts) == ("upstream_error", True)
