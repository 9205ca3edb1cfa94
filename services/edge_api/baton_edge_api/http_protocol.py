"""HTTP/1.1 on one connection: uvicorn's protocol, with the time of the first byte, bounds in bytes and
seconds on headers, on trailers and on what comes behind its own answer, errors in the form that clients of
this API expect, and a disconnect that all requests of the connection hear of. Who offers another protocol, as
Java's client does with each request, is answered in this one.

Knows nothing of requests beyond their head.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from baton_contracts.errors import ErrorBody
from baton_contracts.identifiers import new_request_id
from baton_edge_api.answers import CLOSE, error_answer

MAX_HEAD_BYTES = 64 * 1024
MAX_PIPELINED = 16
"""Requests that stand behind the one that is being answered: with so many nothing more is read."""
MAX_UNSENT_BYTES = 1024 * 1024
"""Of answers, before who writes them has to wait: one that is told at once, since another request got it
before, comes faster than many a client takes it."""
_TAKEN_BYTES = 48 * 1024
"""So much of it must have gone before more is written: who takes as little within the time for a write is
slow, not gone."""


def _new_parser(protocol: HttpToolsProtocol) -> httptools.HttpRequestParser:
    """As the server makes its first one."""
    parser = httptools.HttpRequestParser(protocol)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


class EdgeConnection(HttpToolsProtocol):
    """What the server wants of a connection at its end."""

    heard_at: float | None
    """When its client was last heard or answered, by the loop's clock; None from a whole head on until its
    answer has ended."""


def make_protocol(header_seconds: float, is_leaving: Callable[[], bool]) -> type[EdgeConnection]:
    """Once it `is_leaving`, each answer that begins is the last one of its connection, and says so."""

    class EdgeProtocol(EdgeConnection):
        parser: httptools.HttpRequestParser
        heard_at: float | None = None
        _head_timer: asyncio.TimerHandle | None = None
        _head_bytes = 0
        """Of a head; then of what came behind it and was no body: trailers, or the rest of a request that has
        its answer."""
        _first_byte = 0.0
        _is_whole = True
        """No request is in the middle of coming in."""
        _rest_timer: asyncio.TimerHandle | None = None
        """Runs while a request that has its answer still comes in."""
        _unanswered: deque[RequestResponseCycle]
        """Those whose answer has not ended; the first one is being answered, the others stand behind it."""
        _is_offer = False
        """The head that is read offers another protocol: the parser takes what follows it for that."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            super().connection_made(transport)
            self._unanswered = deque()
            transport.set_write_buffer_limits(MAX_UNSENT_BYTES, MAX_UNSENT_BYTES - _TAKEN_BYTES)
            self.heard_at = self.loop.time()
            self._await_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._end_head()
            self._end_rest()
            for cycle in self._unanswered:
                cycle.disconnected = True
                cycle.message_event.set()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self._head_timer is not None:
                self._first_byte = self._first_byte or time.time()
            self._head_bytes += len(data)
            if self.heard_at is not None:
                self.heard_at = self.loop.time()
            self._unset_keepalive_if_required()
            self._parse(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self._is_whole:
                self._refuse_head()
            elif self._waits_for_nothing():
                self._await_next()

        def _parse(self, data: bytes) -> None:
            rest = memoryview(data)
            try:
                while rest:
                    rest = self._parse_to_offer(rest)
            except httptools.HttpParserError as error:
                self.logger.warning("not HTTP: %s", error)
                self.send_400_response("Invalid HTTP request received.")

        def _parse_to_offer(self, data: memoryview) -> memoryview:
            """Returns what stands behind the first head with an offer, which was parsed without it."""
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                if self._is_offer:
                    self._is_offer = False
                    head = self._head_without_offer()
                    self.parser = _new_parser(self)  # that one may take the connection for closed
                    self.parser.feed_data(head)
                    return data[upgrade.args[0] :]
            return data[:0]

        def _head_without_offer(self) -> bytes:
            """RFC 9110, 7.8: a server may ignore it. The rest of the head says how long the body is."""
            line = b"%s %s HTTP/%s\r\n" % (
                self.parser.get_method(),
                self.url,
                self.parser.get_http_version().encode(),
            )
            kept = (b"%s: %s\r\n" % each for each in self.headers if each[0] != b"upgrade")
            return line + b"".join(kept) + b"\r\n"

        def _refuse_head(self) -> None:
            if self._rest_timer is None:
                self.send_400_response(f"Headers larger than {MAX_HEAD_BYTES} bytes.")
            else:
                self.transport.close()

        def _waits_for_nothing(self) -> bool:
            """Between two requests with nothing that would end it: what came stopped the server's timer."""
            return (
                self.heard_at is not None
                and self._is_whole
                and self._head_timer is None
                and self.timeout_keep_alive_task is None
                and not self.transport.is_closing()
            )

        def _await_next(self) -> None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._is_whole = False
            if self._head_timer is None:
                self._await_head()
                self._first_byte = time.time()
            scope: dict[str, Any] = self.scope  # pyright: ignore[reportAssignmentType]  # ASGI allows more keys
            scope["baton.first_byte"] = self._first_byte
            scope["baton.abort"] = self.transport.abort

        def on_header(self, name: bytes, value: bytes) -> None:
            if self._head_timer is not None:  # else a trailer: nobody asked for any
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self._is_offer = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
            if self._is_offer:
                return
            self._end_head()
            self._head_bytes = 0
            self.heard_at = None
            super().on_headers_complete()
            self._unanswered.append(self.cycle)
            if 0 < len(self.pipeline) < MAX_PIPELINED:
                self.flow.resume_reading()  # uvicorn would not: nobody would notice that the client leaves
            if is_leaving():
                self.cycle.keep_alive = False

        def on_body(self, body: bytes) -> None:
            if self._rest_timer is None:
                self._head_bytes = 0
            super().on_body(body)

        def on_message_complete(self) -> None:
            if self._is_offer:
                return
            self._is_whole = True
            self._end_rest()
            super().on_message_complete()

        def on_response_complete(self) -> None:
            self._unanswered.popleft()
            super().on_response_complete()
            if self.cycle.response_complete:  # no other was sent behind it
                self.heard_at = self.loop.time()
                if not self._is_whole:
                    self._head_bytes = 0
                    self._rest_timer = self.loop.call_later(header_seconds, self.transport.close)

        def _await_head(self) -> None:
            self._head_bytes, self._first_byte = 0, 0.0
            self._head_timer = self.loop.call_later(header_seconds, self._head_too_slow)

        def _end_head(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

        def _end_rest(self) -> None:
            if self._rest_timer is not None:
                self._rest_timer.cancel()
                self._rest_timer = None

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
            none has begun, unless it stands behind another one."""
            if len(self._unanswered) != 1:
                return bool(self._unanswered)
            cycle = self._unanswered[0]
            return cycle.response_started or not cycle.more_body

    return EdgeProtocol
