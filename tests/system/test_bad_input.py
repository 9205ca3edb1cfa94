"""What a hostile client may send: the right 4xx with the error object; a good stream beside it goes on."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.system.client import ERROR_KEYS, PATH, Heard, background, question
from tests.system.live_system import SMALL, LiveSystem

MEGABYTE = 1024 * 1024
GOOD = question(max_tokens=4, stream=False)


def raw(system: LiveSystem, content: bytes | Iterator[bytes], *headers: tuple[str, str]) -> httpx.Response:
    """`headers` may stand twice, and hold anything."""
    given = [*system.headers.items(), ("content-type", "application/json"), *headers]
    encoded = [(name.encode(), value.encode()) for name, value in given]
    return httpx.post(system.url + PATH, content=content, headers=encoded, timeout=30, trust_env=False)


def error_of(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == ERROR_KEYS
    assert error["code"] == code
    assert error["message"]
    assert len(answer.headers["x-request-id"]) == 32
    return error


def but(*without: str, **changes: Any) -> bytes:
    """A good body, but for this."""
    body = {"model": SMALL, "messages": [{"role": "user", "content": "Hello"}]} | changes
    return json.dumps({name: value for name, value in body.items() if name not in without}).encode()


def message(**changes: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "Hello"} | changes]


BODIES: dict[str, tuple[bytes, int, str, str | None]] = {
    "nothing": (b"", 400, "invalid_json", None),
    "half": (b'{"model": "auto", "messages": [', 400, "invalid_json", None),
    "no utf-8": (b'{"model": "\xff\xfe"}', 400, "invalid_json", None),
    "deep": (b"[" * 200_000, 400, "invalid_json", None),
    "a list": (b"[]", 400, "invalid_type", None),
    "NaN": (b'{"model": "auto", "messages": [], "temperature": NaN}', 400, "invalid_json", None),
    "half a character": (but(messages=message(content="\ud800")), 400, "invalid_json", None),
    "no messages": (but("messages"), 400, "missing_required_parameter", "messages"),
    "empty messages": (but(messages=[]), 400, "invalid_value", "messages"),
    "messages text": (but(messages="Hello"), 400, "invalid_type", "messages"),
    "content number": (but(messages=message(content=5)), 400, "invalid_type", "messages[0].content"),
    "role": (but(messages=message(role="wizard")), 400, "invalid_value", "messages[0].role"),
    "no model": (but("model"), 400, "missing_required_parameter", "model"),
    "model null": (but(model=None), 400, "invalid_type", "model"),
    "unknown model": (but(model="gpt-17"), 404, "model_not_found", "model"),
    "model of a subject": (but(model="a.b.>"), 404, "model_not_found", "model"),
    "stream text": (but(stream="yes"), 400, "invalid_type", "stream"),
    "max_tokens": (but(max_tokens=-1), 400, "invalid_value", "max_tokens"),
    "temperature text": (but(temperature="hot"), 400, "invalid_type", "temperature"),
}

REQUEST_IDS = [
    "a.b.>",
    "*",
    ">",
    "x" * 10_000,
    "0" * 32,
    "é" * 8,
    "' or 1=1",
    "../../etc/passwd",
    "1" * 31,
    "",
]


@pytest.fixture
def beside(system: LiveSystem) -> Iterator[None]:
    """A good stream under way while a test runs; in the end it is what it would have been alone."""
    asked = question("Count from one to twenty.", max_tokens=60, ignore_eos=True)
    with background(system, asked, **{"cache-control": "no-cache"}) as good:
        good.has_begun()
        yield
        heard: Heard = good.result()
    assert heard.complete, heard
    assert heard.usage["completion_tokens"] == 60  # type: ignore[index]
    system.wait_at_rest()


def test_bad_bodies(system: LiveSystem, beside: None) -> None:
    for name, (body, status, code, param) in BODIES.items():
        error = error_of(raw(system, body), status, code)
        assert error["param"] == param, name
        assert "Traceback" not in error["message"]


def test_bad_keys(system: LiveSystem, beside: None) -> None:
    for value in ("Bearer sk-wrong", "Bearer", "Basic Og==", f"Bearer {system.key}x", "Bearer \xe9"):
        answer = httpx.post(
            system.url + PATH, json=GOOD, headers={b"authorization": value.encode("latin-1")}, trust_env=False
        )  # fmt: skip
        error_of(answer, 401, "invalid_api_key")
    error_of(httpx.post(system.url + PATH, json=GOOD, trust_env=False), 401, "invalid_api_key")
    for path in ("/v1/models", "/v1/usage", "/v1/traces/" + "a" * 32, "/v1/conversations/x"):
        error_of(httpx.get(system.url + path, trust_env=False), 401, "invalid_api_key")


def test_hostile_request_ids(system: LiveSystem, beside: None) -> None:
    for hostile in REQUEST_IDS:
        answer = raw(system, but(), ("x-request-id", hostile))
        assert hostile == "" or hostile not in answer.headers["x-request-id"]
        error_of(answer, 400, "invalid_request_id")
    twice = ("x-request-id", "a" * 32)
    error_of(raw(system, but(), twice, twice), 400, "invalid_request_id")


def test_line_breaks_in_a_header_are_no_second_header(system: LiveSystem, beside: None) -> None:
    head = (
        f"POST {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {system.key}\r\n"
        "x-request-id: abc\rset-cookie: evil=1\r\ncontent-length: 2\r\n\r\n{}"
    )
    with socket.create_connection(("127.0.0.1", system.port), timeout=10) as connection:
        connection.sendall(head.encode())
        answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"evil" not in answer


def test_the_id_of_a_request_under_way_is_taken(system: LiveSystem) -> None:
    taken = "ab" * 16
    asked = question("Count from one to twenty.", max_tokens=600, ignore_eos=True)
    with background(system, asked, **{"x-request-id": taken}) as first:
        assert first.has_begun().request_id == taken
        for same in (taken, taken.upper(), "abababab-abab-abab-abab-abababababab"):
            error_of(system.post(GOOD, **{"x-request-id": same}), 409, "conflict")
        heard = first.result()
    assert heard.complete
    assert heard.usage["completion_tokens"] == 600  # type: ignore[index]
    assert len(system.usage(taken)) == 1


def pieces(num_megabytes: int) -> Iterator[bytes]:
    yield b'{"model": "auto", "messages": [{"role": "user", "content": "'
    for _ in range(num_megabytes):
        yield b"x" * MEGABYTE


def refused_or_cut(system: LiveSystem, content: bytes | Iterator[bytes]) -> None:
    """413; or the connection was closed under a sender that does not stop."""
    try:
        answer = raw(system, content)
    except (httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError):
        return
    error_of(answer, 413, "request_too_large")


def test_huge_bodies(system: LiveSystem, beside: None) -> None:
    edge = system.pids()["edge_api"]
    error_of(raw(system, b"".join(pieces(5))), 413, "request_too_large")
    refused_or_cut(system, pieces(50))
    assert system.pids()["edge_api"] == edge
    more_than_the_context = but(messages=message(content="word " * 20_000))
    error_of(raw(system, more_than_the_context), 400, "context_length_exceeded")
    error_of(raw(system, but(messages=message(content="x" * 1_500_000))), 413, "request_too_large")


def test_other_methods_and_paths(system: LiveSystem, beside: None) -> None:
    get = httpx.get(system.url + PATH, headers=system.headers, trust_env=False)
    error_of(get, 405, "method_not_allowed")
    error_of(system.get("/v1/no-such-thing"), 404, "not_found")
    error_of(system.get("/v1/traces/" + "f" * 32), 404, "not_found")
    error_of(system.get("/v1/traces/a.b.>"), 400, "invalid_value")
    error_of(system.get("/v1/conversations/conv-nobody"), 404, "not_found")
