"""Reading a request's body: bounded in bytes and in time.

Owns what a hostile or slow sender can cost. Knows nothing of what the body means.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from starlette.types import Receive, Scope

from baton_common.errors import RequestFailed


class ClientGone(Exception):
    """The client closed the connection before its request was complete."""


class BodyRefused(RequestFailed):
    """The body was not read to its end: the connection can't be used again."""


def declared_length(scope: Scope) -> int | None:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value)  # the HTTP parser let only digits through
    return None


def _too_large(limit: int) -> BodyRefused:
    error = RequestFailed.because("request_too_large", f"The body is larger than {limit} bytes. Send less.")
    return BodyRefused(error.error)


def _too_slow(seconds: float) -> BodyRefused:
    text = f"The body did not arrive within {seconds:g} s. Send it faster."
    return BodyRefused(RequestFailed.because("invalid_request", text).error)


async def read_body(scope: Scope, receive: Receive, *, limit: int, seconds: float) -> bytes:
    """Raises BodyRefused or ClientGone."""
    if (declared_length(scope) or 0) > limit:
        await discard(scope, receive, limit)
        raise _too_large(limit)
    try:
        async with asyncio.timeout(seconds):
            return await _read(scope, receive, limit, seconds / 3)
    except TimeoutError:
        raise _too_slow(seconds) from None


async def body_pieces(
    scope: Scope, receive: Receive, *, limit: int, seconds: float, piece_seconds: float
) -> AsyncGenerator[bytes, None]:
    """A body too large to hold, piece by piece. Raises as `read_body`."""
    if (declared_length(scope) or 0) > limit:
        await discard(scope, receive, limit)
        raise _too_large(limit)
    loop = asyncio.get_running_loop()
    deadline, total, more = loop.time() + seconds, 0, True
    while more:
        try:
            async with asyncio.timeout_at(min(deadline, loop.time() + piece_seconds)):
                event = await receive()
        except TimeoutError:
            raise _too_slow(seconds) from None
        if event["type"] == "http.disconnect":
            raise ClientGone
        piece = event.get("body", b"")
        total += len(piece)
        if total > limit:
            await discard(scope, receive, limit)
            raise _too_large(limit)
        more = event.get("more_body", False)
        yield piece


async def _read(scope: Scope, receive: Receive, limit: int, piece_seconds: float) -> bytes:
    pieces: list[bytes] = []
    total = 0
    while True:
        async with asyncio.timeout(piece_seconds):
            event = await receive()
        if event["type"] == "http.disconnect":
            raise ClientGone
        piece = event.get("body", b"")
        total += len(piece)
        if total > limit:
            await discard(scope, receive, limit)
            raise _too_large(limit)
        pieces.append(piece)
        if not event.get("more_body", False):
            return b"".join(pieces) if len(pieces) > 1 else piece


async def discard(scope: Scope, receive: Receive, limit: int) -> None:
    """Lets a client that is in the middle of sending finish, within bounds: one whose connection is closed
    under its feet never reads the answer. One that waits for `100 Continue` sends nothing yet."""
    if any(name == b"expect" for name, _ in scope["headers"]):
        return
    seen = 0
    try:
        async with asyncio.timeout(2):
            while seen <= 2 * limit:
                event = await receive()
                if event["type"] == "http.disconnect" or not event.get("more_body", False):
                    return
                seen += len(event.get("body", b""))
    except TimeoutError:
        return
