"""One write to the socket for what one turn of the loop says, and nothing left behind at a close."""

from __future__ import annotations

import asyncio
from typing import Any

from baton_edge_api.joined_writes import JoinedWrites


class Transport:
    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.calls.append(data)

    def close(self) -> None:
        self.calls.append("close")
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def get_extra_info(self, name: str) -> str:
        return f"the {name}"


def joined() -> tuple[Transport, JoinedWrites]:
    transport = Transport()
    return transport, JoinedWrites(transport, asyncio.get_running_loop())  # type: ignore[arg-type]


async def test_what_one_turn_writes_is_one_write() -> None:
    transport, writes = joined()
    writes.write(b"head")
    writes.write(b"body")
    assert not transport.calls
    await asyncio.sleep(0)
    writes.write(b"event")
    await asyncio.sleep(0)
    assert transport.calls == [b"headbody", b"event"]


async def test_a_close_leaves_nothing_behind_and_what_comes_too_late_is_dropped() -> None:
    transport, writes = joined()
    writes.write(b"last")
    writes.close()
    writes.write(b"late")
    await asyncio.sleep(0)
    assert transport.calls == [b"last", "close"]


async def test_all_else_is_the_transports() -> None:
    _, writes = joined()
    assert writes.get_extra_info("peername") == "the peername"
