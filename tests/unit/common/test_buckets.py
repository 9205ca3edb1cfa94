"""How a reading of a bucket knows that it is whole, whichever of the server's words comes first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import nats.errors
import pytest

from baton_common.buckets import BucketReading


class Subscription:
    """Says what the server would: of the consumer, and entry by entry. None: silence."""

    def __init__(self, infos: list[tuple[int, int]], messages: list[tuple[str, int] | None]) -> None:
        self.infos = infos
        """Delivered and pending."""
        self.messages = messages
        """Name, and how many come after it."""

    async def consumer_info(self) -> Any:
        delivered, pending = self.infos.pop(0)
        return SimpleNamespace(delivered=SimpleNamespace(consumer_seq=delivered), num_pending=pending)

    async def next_msg(self, timeout: float) -> Any:
        if not self.messages or (found := self.messages.pop(0)) is None:
            raise nats.errors.TimeoutError
        metadata = SimpleNamespace(num_pending=found[1], sequence=SimpleNamespace(stream=1))
        return SimpleNamespace(subject=f"$KV.b.{found[0]}", data=b"x", headers=None, metadata=metadata)


async def names_of(infos: list[tuple[int, int]], *messages: tuple[str, int] | None) -> list[str]:
    reading = BucketReading(cast(Any, Subscription(infos, list(messages))), "$KV.b.")
    return [entry.name async for entry in reading.first()]


async def test_entries_that_are_on_their_way_when_the_consumer_is_asked_count() -> None:
    assert await names_of([(2, 0)], ("one", 1), ("two", 0)) == ["one", "two"]


async def test_an_empty_bucket_is_not_waited_for() -> None:
    assert await names_of([(0, 0)]) == []


async def test_entries_that_were_purged_meanwhile_are_not_waited_for() -> None:
    assert await names_of([(0, 3), (1, 0)], ("one", 2), None) == ["one"]


async def test_a_server_that_falls_silent_is_an_error() -> None:
    with pytest.raises(nats.errors.TimeoutError):
        await names_of([(0, 3)] * 10, ("one", 2))
