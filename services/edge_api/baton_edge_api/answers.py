"""Answers that are one JSON body, and the form of an error: object, status and headers.

Owns the map from ErrorBody to HTTP. Knows nothing of what went wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import orjson

from baton_contracts.errors import ErrorBody, error_type

HeaderList = list[tuple[bytes, bytes]]

NO_STORE: tuple[bytes, bytes] = (b"cache-control", b"no-store")
SSE_HEADERS: HeaderList = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
CLOSE: tuple[bytes, bytes] = (b"connection", b"close")


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    headers: HeaderList = field(default_factory=list[tuple[bytes, bytes]])
    media_type: bytes = b"application/json"

    def all_headers(self) -> HeaderList:
        length = str(len(self.body)).encode()
        return [(b"content-type", self.media_type), (b"content-length", length), *self.headers]


def json_answer(value: object, status: int = 200) -> Answer:
    return Answer(status, orjson.dumps(value))


def error_object(error: ErrorBody) -> dict[str, Any]:
    """OpenAI's error object: these four keys, always."""
    return {
        "error": {
            "message": error.message,
            "type": error_type(error.code),
            "param": error.param,
            "code": error.code,
        }
    }


def error_answer(error: ErrorBody, *, close: bool = False) -> Answer:
    headers: HeaderList = [NO_STORE]
    if error.stop:
        headers.append((b"x-baton-stop", error.stop.encode()))
    if error.status in (429, 503):
        headers += retry_headers(error.retry_after_seconds)
    if error.code == "insufficient_quota":
        headers.append((b"x-should-retry", b"false"))
    if error.status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="baton"'))
    if close:
        headers.append(CLOSE)
    return Answer(error.status, orjson.dumps(error_object(error)), headers)


def retry_headers(seconds: float | None) -> HeaderList:
    """Whole seconds, at least one, for HTTP; milliseconds for clients that know the other header."""
    wait = 1.0 if seconds is None else seconds
    whole = max(1, math.ceil(wait))
    return [
        (b"retry-after", str(whole).encode()),
        (b"retry-after-ms", str(max(1, round(wait * 1000))).encode()),
    ]


def error_event(error: ErrorBody) -> bytes:
    """An error after the first byte: an event of its own, and nothing after it."""
    return b"data: " + orjson.dumps(error_object(error)) + b"\n\n"
