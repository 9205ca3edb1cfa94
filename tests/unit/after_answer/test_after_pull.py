"""Taking messages from a consumer: what the inbox does when the server has forgotten its pull."""

from __future__ import annotations

import asyncio

import pytest

from baton_after_answer import pull
from baton_after_answer.pull import PullInbox
from baton_common.bus import BusMessage
from baton_common.memory_bus import MemoryBus


async def test_a_bus_that_is_back_is_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull, "_PATIENCE_SECONDS", 1000.0)  # the silence of a forgotten pull says nothing
    bus = MemoryBus()
    pulls: asyncio.Queue[BusMessage] = asyncio.Queue()
    await bus.subscribe("$JS.API.CONSUMER.MSG.NEXT.AFTER.books", pulls.put_nowait)
    inbox = PullInbox(bus, stream="AFTER", consumer="books", inbox_prefix="_INBOX", batch=4)
    await inbox.start()
    waiting = asyncio.create_task(inbox.wait())
    async with asyncio.timeout(20):
        await pulls.get()
        bus.online = False
        bus.online = True  # before the inbox has looked
        asked = await pulls.get()
        await bus.publish(asked.reply, b"record", reply="$JS.ACK.AFTER.books.1.7.1.1500000000.0")
        await bus.publish(asked.reply, b"its end")
        assert await waiting
    bus.online = False  # nothing more is asked for
    (delivery,) = await inbox.fetch()
    assert (delivery.payload, delivery.stored_at) == (b"record", 1.5)
