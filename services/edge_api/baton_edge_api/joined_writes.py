"""What one turn of the loop writes to a client goes out as one piece: head and body of an answer, events that
are there together.

uvloop calls the system for each write, and whoever reads at the other end wakes up for each.
"""

from __future__ import annotations

import asyncio
from typing import Any


class JoinedWrites:
    """A transport whose writes wait for the end of the turn. Everything else is the transport's own."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._unwritten: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._unwritten:
            self._loop.call_soon(self._write)
        self._unwritten.append(data)

    def close(self) -> None:
        self._write()
        self._transport.close()

    def _write(self) -> None:
        unwritten, self._unwritten = self._unwritten, []
        if unwritten and not self._transport.is_closing():
            self._transport.write(b"".join(unwritten))
