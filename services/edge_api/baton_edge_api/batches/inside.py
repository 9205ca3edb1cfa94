"""A request that the edge makes of itself: the same endpoint, the same checks, no socket.

Owns the ASGI conversation of one request. Knows nothing of batches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Scope

from baton_edge_api.exchange import Inside


@dataclass(frozen=True)
class InsideAnswer:
    status: int
    headers: dict[str, str]
    body: bytes


class InsideCall:
    """One POST of JSON. `leave` does what a client does that closes its connection. `on_event` gets the
    pieces of a stream as they come: its answer has no body then."""

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

    async def run(self) -> InsideAnswer | None:
        """The answer; None if it was left before it was complete."""
        await self._app(self._scope(), self._receive, self._send)
        if self._start is None or not self._complete:
            return None
        headers = {name.decode(): value.decode("latin-1") for name, value in self._start["headers"]}
        return InsideAnswer(self._start["status"], headers, b"".join(self._pieces))

    def leave(self) -> None:
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
            piece = message.get("body", b"")
            if self._on_event and self._start and self._start["status"] == 200:
                self._on_event(piece)
            else:
                self._pieces.append(piece)
            self._complete = not message.get("more_body", False)
