"""The real books in the test's own event loop: after_answer with SQLite, and the queue that leads to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from baton_after_answer.__main__ import wire
from baton_after_answer.settings import Settings
from baton_common.jetstream import JetStreamError, call
from baton_common.nats_bus import NatsBus
from baton_common.node import Node
from baton_contracts.subjects import AFTER_ALL, STREAM_AFTER


async def make_after_stream(bus: NatsBus) -> None:
    """For tests without books; where there are some, the queue is theirs already."""
    try:
        await call(bus, f"STREAM.INFO.{STREAM_AFTER}")
    except JetStreamError:
        await bus.jetstream.add_stream(name=STREAM_AFTER, subjects=[AFTER_ALL])


@asynccontextmanager
async def running_books(nats_url: str, home: Path) -> AsyncGenerator[Path, None]:
    """Gives the path of the database. Needs a NATS server of its own: the queue's kind can't be changed."""
    bus = await NatsBus.connect(nats_url, name="after_answer")
    node = Node(bus, "after_answer")
    try:
        await node.start()
        async with wire(Settings(home=home, books_barrier_seconds=5.0))(node, bus):
            await node.become_ready()
            yield home / "books.sqlite"
            await node.drain(2)
        await node.stop()
    finally:
        await bus.close()
