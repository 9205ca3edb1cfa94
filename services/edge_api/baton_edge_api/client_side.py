"""The client's end of one answer: what was written to it, and in what form it can still be told something.

Owns the order of ASGI events and the times that the watchdog looks at. Knows nothing of what is written.
"""

from __future__ import annotations

import asyncio

from starlette.types import Send

from baton_common.tasks import spawn
from baton_contracts.errors import ErrorBody
from baton_edge_api import sse
from baton_edge_api.answers import SSE_HEADERS, Answer, HeaderList, error_answer
from baton_edge_api.exchange import Exchange
from baton_edge_api.interruption import Watchdog


class ClientSide:
    def __init__(self, exchange: Exchange, watchdog: Watchdog, send: Send, write_timeout: float) -> None:
        self._exchange = exchange
        self._watchdog = watchdog
        self._send = send
        self._write_timeout = write_timeout
        self._now = asyncio.get_running_loop().time
        self._streaming = False

    async def begin_stream(self, headers: HeaderList) -> None:
        """May wait for the answers before it on the same connection to be taken."""
        self._watchdog.writing_since = self._now()
        await self._send({"type": "http.response.start", "status": 200, "headers": [*SSE_HEADERS, *headers]})

    def ping_when_silent(self) -> None:
        self._watchdog.streams(self._ping)

    async def write(self, event: bytes, *, more: bool = True) -> None:
        watchdog = self._watchdog
        self._streaming = more
        watchdog.writing_since = self._now()
        await self._send({"type": "http.response.body", "body": event, "more_body": more})
        watchdog.writing_since = None
        watchdog.last_write = self._now()

    def _ping(self) -> None:
        spawn(self._send_ping())

    async def _send_ping(self) -> None:
        if self._streaming:
            await self._send({"type": "http.response.body", "body": sse.PING, "more_body": True})

    async def send_whole(self, answer: Answer) -> None:
        watchdog = self._watchdog
        watchdog.writing_since = self._now()
        headers = answer.all_headers()
        await self._send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": answer.body})
        watchdog.writing_since = None

    async def tell(self, error: ErrorBody, event: bytes, headers: HeaderList) -> None:
        """In the form that still fits: `event` within a stream, else an answer with `headers`."""
        try:
            async with asyncio.timeout(self._write_timeout):
                if self._streaming:
                    await self.write(event, more=False)
                elif self._exchange.status:
                    self.abort()
                else:
                    answer = error_answer(error)
                    answer.headers.extend(headers)
                    await self.send_whole(answer)
        except TimeoutError:
            self.abort()

    def abort(self) -> None:
        """Cuts the connection."""
        self._exchange.abort()

    @property
    def is_streaming(self) -> bool:
        """Events may be written: the stream has begun and has not ended."""
        return self._streaming
