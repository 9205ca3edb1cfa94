"""Buckets read and followed on a real bus."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import nats.errors
import pytest

from baton_common.buckets import BucketEntry, open_bucket, read_bucket, reading_bucket
from baton_common.nats_bus import NatsBus
from tests.support.nats_server import running_nats_server

MOST_CONSUMERS = 1000
"""That a stream takes if nothing else is said."""


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[NatsBus]:
    with running_nats_server(tmp_path) as url:
        bus = await NatsBus.connect(url, name="test")
        yield bus
        await bus.close()


async def test_what_is_there_is_read_and_what_was_removed_is_not(bus: NatsBus) -> None:
    bucket = await open_bucket(bus.jetstream, "things")
    assert [entry async for entry in read_bucket(bus.jetstream, "things")] == []
    await bucket.put("one.a", b"1")
    await bucket.put("one.a", b"2")
    await bucket.put("one.b", b"3")
    await bucket.delete("one.b")
    await bucket.put("two.c", b"4")
    assert [entry async for entry in read_bucket(bus.jetstream, "things")] == [
        BucketEntry("one.a", b"2", 2),
        BucketEntry("two.c", b"4", 5),
    ]
    assert [entry.name async for entry in read_bucket(bus.jetstream, "things", "one.*")] == ["one.a"]
    names = [entry async for entry in read_bucket(bus.jetstream, "things", names_only=True)]
    assert names == [BucketEntry("one.a", b"", 2), BucketEntry("two.c", b"", 5)]


async def test_every_reading_is_whole_and_leaves_nothing_behind(bus: NatsBus) -> None:
    """More readings than a stream takes consumers. Of nats-py's own, three in a thousand found nothing."""
    bucket = await open_bucket(bus.jetstream, "things")
    await bucket.put("one", b"1")
    for _ in range(MOST_CONSUMERS + 100):
        assert [entry.value async for entry in read_bucket(bus.jetstream, "things")] == [b"1"]
    assert (await bus.jetstream.stream_info("KV_things")).state.consumer_count == 0


async def test_who_stops_half_way_leaves_nothing_behind(bus: NatsBus) -> None:
    bucket = await open_bucket(bus.jetstream, "things")
    for number in range(5):
        await bucket.put(f"{number}", b"x")
    async with aclosing(read_bucket(bus.jetstream, "things")) as entries:
        assert (await anext(entries)).name == "0"
    assert (await bus.jetstream.stream_info("KV_things")).state.consumer_count == 0


async def test_what_comes_after_the_first_ones_is_heard(bus: NatsBus) -> None:
    bucket = await open_bucket(bus.jetstream, "things")
    await bucket.put("one", b"1")
    async with reading_bucket(bus.jetstream, "things") as reading:
        assert [entry.name async for entry in reading.first()] == ["one"]
        with pytest.raises(nats.errors.TimeoutError):
            await reading.next(0.01)
        await bucket.put("two", b"2")
        await bucket.delete("one")
        assert await reading.next(5) == BucketEntry("two", b"2", 2)
        assert await reading.next(5) == BucketEntry("one", None, 3)
