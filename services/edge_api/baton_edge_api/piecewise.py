"""An answer that goes to its client piece by piece.

Owns what a client that takes nothing can hold: what the answer holds is let go after a while, whatever became
of it. Who asks for the head alone holds nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

from starlette.responses import Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from baton_edge_api.answers import HeaderList
from baton_edge_api.body import ClientGone
from baton_edge_api.exchange import exchange_of


class PiecewiseAnswer(StreamingResponse):
    def __init__(
        self,
        pieces: AsyncGenerator[bytes, None],
        headers: HeaderList,
        held: AsyncExitStack,
        write_seconds: float,
    ) -> None:
        """`held` is let go when the answer is over. Empty pieces are left out."""
        super().__init__(pieces)
        self.raw_headers = headers
        self._held = held
        self._write_seconds = write_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            if not message.get("body", b"-") and message.get("more_body"):
                return
            try:
                async with asyncio.timeout(self._write_seconds):
                    await send(message)
            except TimeoutError:
                exchange_of(scope).abort()
                raise ClientGone from None

        async with self._held:
            if scope["method"] == "HEAD":
                await self._held.aclose()
                await head_of(self.raw_headers)(scope, receive, send)
                return
            await super().__call__(scope, receive, send_in_time)


def head_of(headers: HeaderList) -> Response:
    """What HEAD gets of an answer with these headers."""
    head = Response()
    head.raw_headers = headers
    return head
