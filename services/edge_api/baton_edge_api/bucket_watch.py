"""Keeps something in memory equal to a part of a bucket, for ever.

Owns the watch and what happens when the bus goes away: memory serves, and after a reconnect all is read
again. Knows nothing of what an entry means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import nats.errors

from baton_common.buckets import BucketEntry, open_bucket, reading_bucket
from baton_common.nats_bus import NatsBus

RESYNC_SECONDS = 60.0
"""The bucket is read anew so often, in case a watch has died unnoticed."""


class Mirror(Protocol):
    def put(self, entry: str, value: bytes, /) -> None: ...

    def remove(self, entry: str, /) -> None: ...

    def replace(self, entries: Mapping[str, bytes], /) -> None:
        """All of them as they are now."""
        ...


async def watch_bucket(bus: NatsBus, name: str, entries: str, mirror: Mirror) -> None:
    """Runs for ever; raises what the bus raises, so that its supervisor starts it again. `entries` is `>` or
    the beginning of those that are wanted with `.>` after it."""
    while True:
        await open_bucket(bus.jetstream, name)
        await _follow(bus, name, entries, mirror)


async def _follow(bus: NatsBus, name: str, entries: str, mirror: Mirror) -> None:
    """Returns when the bucket should be read anew."""
    connection = bus.num_reconnects
    async with reading_bucket(bus.jetstream, name, entries) as reading:
        first = [entry async for entry in reading.first()]
        mirror.replace({entry.name: entry.value for entry in first if entry.value is not None})
        quiet = 0.0
        while bus.num_reconnects == connection and quiet < RESYNC_SECONDS:
            try:
                _apply(mirror, await reading.next(0.5))
            except nats.errors.TimeoutError:
                quiet += 0.5


def _apply(mirror: Mirror, entry: BucketEntry) -> None:
    if entry.value is None:
        mirror.remove(entry.name)
    else:
        mirror.put(entry.name, entry.value)
