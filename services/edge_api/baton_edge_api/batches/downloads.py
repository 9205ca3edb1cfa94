"""A file on its way to a client, piece by piece.

Owns what a client that takes nothing can hold: its turn and the contents are freed after a while, whatever
became of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import IO

from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from baton_edge_api.body import ClientGone
from baton_edge_api.exchange import exchange_of

_PIECE = 256 * 1024


class Download(StreamingResponse):
    def __init__(
        self, content: IO[bytes], headers: dict[str, str], held: AsyncExitStack, write_seconds: float
    ) -> None:
        """`held` is let go when the answer is over."""
        super().__init__(_pieces(content), headers=headers, media_type="application/octet-stream")
        self._held = held
        self._write_seconds = write_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            try:
                async with asyncio.timeout(self._write_seconds):
                    await send(message)
            except TimeoutError:
                exchange_of(scope).abort()
                raise ClientGone from None

        async with self._held:
            await super().__call__(scope, receive, send_in_time)


async def _pieces(content: IO[bytes]) -> AsyncGenerator[bytes, None]:
    while piece := await asyncio.to_thread(content.read, _PIECE):
        yield piece
