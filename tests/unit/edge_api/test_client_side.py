"""The client's end of one answer, where the client takes nothing."""

from __future__ import annotations

import asyncio

from starlette.types import Message

from baton_edge_api.client_side import ClientSide
from baton_edge_api.exchange import Exchange
from baton_edge_api.interruption import Interrupt, Patience, Watchdog

MINUTE = 60.0


async def test_who_does_not_even_take_the_head_of_a_stream_takes_nothing() -> None:
    """The connection is full of the answers before it."""
    interrupts: asyncio.Queue[Interrupt] = asyncio.Queue()

    async def is_full(message: Message) -> None:
        await asyncio.Event().wait()

    patience = Patience(keep_alive=MINUTE, idle=0.02, write=0.02, total=MINUTE)
    watchdog = Watchdog(patience, interrupts.put_nowait)
    client = ClientSide(Exchange("0" * 32, 0.0), watchdog, is_full, MINUTE)
    watchdog.start()
    beginning = asyncio.create_task(client.begin_stream([]))
    async with asyncio.timeout(5):
        assert (await interrupts.get()).cancel == "slow_consumer"
    beginning.cancel()
