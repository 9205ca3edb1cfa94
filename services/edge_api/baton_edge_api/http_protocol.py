"""HTTP/1.1 on one connection: uvicorn's protocol, with the time of the first byte, bounds on headers in
bytes and seconds, and errors in the form that clients of this API expect.

Knows nothing of requests beyond their head.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from baton_contracts.errors import ErrorBody
from baton_contracts.identifiers import new_request_id
from baton_edge_api.answers import CLOSE, error_answer

MAX_HEAD_BYTES = 64 * 1024
MAX_UNSENT_BYTES = 1024 * 1024
"""Of answers, before who writes them has to wait: one that is told at once, since another request got it
before, comes faster than many a client takes it."""


class EdgeConnection(HttpToolsProtocol):
    """What the server wants of a connection at its end."""

    heard_at: float | None
    """When its client was last heard or answered, by the loop's clock; None from a whole head on until its
    answer has ended."""


def make_protocol(header_seconds: float, is_leaving: Callable[[], bool]) -> type[EdgeConnection]:
    """Once it `is_leaving`, each answer that begins is the last one of its connection, and says so."""

    class EdgeProtocol(EdgeConnection):
        heard_at: float | None = None
        _head_timer: asyncio.TimerHandle | None = None
        _head_bytes = 0
        _first_byte = 0.0

        def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            super().connection_made(transport)
            transport.set_write_buffer_limits(MAX_UNSENT_BYTES)
            self.heard_at = self.loop.time()
            self._await_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._end_head()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self._head_timer is not None:
                self._first_byte = self._first_byte or time.time()
                self._head_bytes += len(data)
            if self.heard_at is not None:
                self.heard_at = self.loop.time()
            super().data_received(data)
            if self._head_timer is not None and self._head_bytes > MAX_HEAD_BYTES:
                self.send_400_response(f"Headers larger than {MAX_HEAD_BYTES} bytes.")

        def on_message_begin(self) -> None:
            super().on_message_begin()
            if self._head_timer is None:
                self._await_head()
                self._first_byte = time.time()
            scope: dict[str, Any] = self.scope  # pyright: ignore[reportAssignmentType]  # ASGI allows more keys
            scope["baton.first_byte"] = self._first_byte
            scope["baton.abort"] = self.transport.abort

        def on_headers_complete(self) -> None:
            self._end_head()
            self.heard_at = None
            super().on_headers_complete()
            if is_leaving():
                self.cycle.keep_alive = False

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self.cycle.response_complete:  # no other was sent behind it
                self.heard_at = self.loop.time()

        def _await_head(self) -> None:
            self._head_bytes, self._first_byte = 0, 0.0
            self._head_timer = self.loop.call_later(header_seconds, self._head_too_slow)

        def _end_head(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

        def _head_too_slow(self) -> None:
            self._head_timer = None
            if self._first_byte:
                self.send_400_response(f"The headers did not arrive within {header_seconds:g} s.")
            else:
                self.transport.close()

        def send_400_response(self, msg: str) -> None:
            self._end_head()
            if self.transport.is_closing():
                return
            if self._is_answering():
                self.transport.close()  # nothing can be said
                return
            answer = error_answer(ErrorBody(code="invalid_request", message=msg))
            headers = [*answer.all_headers(), CLOSE, (b"x-request-id", new_request_id().encode())]
            head = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
            self.transport.write(b"HTTP/1.1 400 Bad Request\r\n" + head + b"\r\n" + answer.body)
            self.transport.close()

        def _is_answering(self) -> bool:
            """In the middle of an answer, or about to begin one: of a request whose body is still being read
            none has begun."""
            cycle = self.cycle
            if cycle is None or cycle.response_complete:  # pyright: ignore[reportUnnecessaryComparison]
                return False
            return cycle.response_started or not cycle.more_body

    return EdgeProtocol
