"""A request that the edge makes of itself: the same endpoint, the same checks, no socket.

Owns the ASGI conversation of one request, and which answers count: a relay that is busy is asked again. Knows
nothing of why it is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.types import ASGIApp, Message, Scope

from baton_edge_api.exchange import Inside

_LONGEST_PAUSE = 60.0
_UPSTREAM_TRIES = 3

T = TypeVar("T")


@dataclass(frozen=True)
class InsideAnswer:
    status: int
    headers: dict[str, str]
    body: bytes


class InsideCall:
    """One POST of JSON. `on_event` gets the pieces of a stream as they come; the last one is the body of the
    answer, which says how it ended."""

    def __init__(
        self,
        app: ASGIApp,
        path: str,
        body: bytes,
        inside: Inside,
        request_id: str,
        *,
        on_event: Callable[[bytes], None] | None = None,
    ) -> None:
        self._app = app
        self._path = path
        self._body = body
        self._inside = inside
        self._request_id = request_id
        self._on_event = on_event
        self._gone = asyncio.Event()
        self._body_given = False
        self._start: MutableMapping[str, Any] | None = None
        self._pieces: list[bytes] = []
        self._complete = False

    async def run(self, *leaving: asyncio.Event) -> InsideAnswer | None:
        """The answer; None if it was left before it was complete. Any of these events does what a client does
        that closes its connection."""
        watches = [asyncio.create_task(self._leave_at(event)) for event in leaving]
        try:
            await self._app(self._scope(), self._receive, self._send)
        finally:
            for watch in watches:
                watch.cancel()
        if self._start is None or not self._complete:
            return None
        headers = {name.decode(): value.decode("latin-1") for name, value in self._start["headers"]}
        return InsideAnswer(self._start["status"], headers, b"".join(self._pieces))

    async def _leave_at(self, event: asyncio.Event) -> None:
        await event.wait()
        self._gone.set()

    def _scope(self) -> Scope:
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(self._body)).encode()),
            (b"x-request-id", self._request_id.encode()),
        ]
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": self._path,
            "raw_path": self._path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": headers,
            "client": None,
            "server": None,
            "baton.inside": self._inside,
        }

    async def _receive(self) -> Message:
        if not self._body_given:
            self._body_given = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
        elif message["type"] == "http.response.body":
            piece, more = message.get("body", b""), message.get("more_body", False)
            if more and self._on_event and self._start and self._start["status"] == 200:
                self._on_event(piece)
            else:
                self._pieces.append(piece)
            self._complete = not more


class Tries:
    """Of one question."""

    def __init__(self) -> None:
        self._num_upstream_failures = 0

    def pause_after(self, answer: InsideAnswer) -> float | None:
        """Seconds until another try makes sense; None: this answer counts. 409 is a live request of the same
        id, which will end; a server that fails is asked so often and no more."""
        if answer.status not in (409, 429, 502, 503) or answer.headers.get("x-should-retry") == "false":
            return None
        self._num_upstream_failures += answer.status == 502
        if self._num_upstream_failures >= _UPSTREAM_TRIES:
            return None
        asked = answer.headers.get("retry-after", "1")
        return min(_LONGEST_PAUSE, float(asked)) if asked.isdigit() else 1.0


async def unless(event: asyncio.Event, work: Awaitable[T]) -> T | None:
    """What `work` gives; None if the event came first."""
    task = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        task.cancel()
        waiting.cancel()
