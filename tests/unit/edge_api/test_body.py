from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from baton_edge_api.body import BodyRefused, ClientGone, read_body


def receiving(*pieces: bytes, then: str = "end") -> Any:
    """`then`: end of the body, disconnect, or silence."""
    events: Iterable[dict[str, Any]] = iter(
        [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    )

    async def receive() -> dict[str, Any]:
        for event in events:
            return event
        if then == "silence":
            await asyncio.Event().wait()
        if then == "disconnect":
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": b"", "more_body": False}

    return receive


async def read(*pieces: bytes, then: str = "end", length: int | None = None, seconds: float = 5) -> bytes:
    headers = [] if length is None else [(b"content-length", str(length).encode())]
    return await read_body({"headers": headers}, receiving(*pieces, then=then), limit=10, seconds=seconds)


async def test_pieces_are_joined() -> None:
    assert await read(b"abc", b"", b"defghij") == b"abcdefghij"
    assert await read() == b""


async def test_one_byte_too_many_is_refused_declared_or_not() -> None:
    for length in (None, 11):
        with pytest.raises(BodyRefused) as caught:
            await read(b"abcdefghijk", length=length)
        assert caught.value.error.code == "request_too_large"


async def test_a_client_that_goes_is_no_error() -> None:
    with pytest.raises(ClientGone):
        await read(b"abc", then="disconnect")


async def test_silence_is_refused() -> None:
    with pytest.raises(BodyRefused) as caught:
        await read(b"abc", then="silence", seconds=0.03)
    assert caught.value.error.code == "invalid_request"


async def test_a_client_that_waits_for_leave_to_send_is_answered_at_once() -> None:
    scope = {"headers": [(b"content-length", b"11"), (b"expect", b"100-continue")]}

    async def receive() -> Any:
        pytest.fail("reading would invite it to send")

    with pytest.raises(BodyRefused):
        await read_body(scope, receive, limit=10, seconds=5)
