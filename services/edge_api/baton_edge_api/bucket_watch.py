"""Keeps something in memory equal to a part of a bucket, for ever.

Owns the watch and what happens when the bus goes away: memory serves, and after a reconnect all is read
again. Knows nothing of what an entry means.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Protocol, cast

import nats.errors
from nats.js import JetStreamContext
from nats.js.errors import BadRequestError, BucketNotFoundError
from nats.js.kv import KeyValue

from baton_common.nats_bus import NatsBus

log = logging.getLogger(__name__)

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
        bucket = await open_bucket(bus.jetstream, name)
        await _follow(bus, bucket, entries, mirror)


async def open_bucket(jetstream: JetStreamContext, name: str) -> KeyValue:
    """Made, if nobody has yet."""
    try:
        return await jetstream.key_value(name)
    except BucketNotFoundError:
        log.info("making the bucket %s", name)
    try:
        return await jetstream.create_key_value(bucket=name, history=1)
    except BadRequestError:  # another process was faster
        return await jetstream.key_value(name)


async def _follow(bus: NatsBus, bucket: KeyValue, entries: str, mirror: Mirror) -> None:
    """Returns when the bucket should be read anew."""
    connection = bus.num_reconnects
    watcher: Any = await bucket.watch(entries)
    try:
        mirror.replace(await _read_all(watcher))
        quiet = 0.0
        while bus.num_reconnects == connection and quiet < RESYNC_SECONDS:
            try:
                entry = cast("KeyValue.Entry | None", await watcher.updates(timeout=0.5))
            except nats.errors.TimeoutError:
                quiet += 0.5
            else:
                if entry is not None:
                    _apply(mirror, entry)
    finally:
        await _stop(watcher)


async def _read_all(watcher: Any) -> dict[str, bytes]:
    entries: dict[str, bytes] = {}
    while (entry := cast("KeyValue.Entry | None", await watcher.updates(timeout=5))) is not None:
        if entry.operation is None and entry.value is not None:
            entries[entry.key] = entry.value
    return entries


def _apply(mirror: Mirror, entry: KeyValue.Entry) -> None:
    if entry.operation is None and entry.value is not None:
        mirror.put(entry.key, entry.value)
    else:
        mirror.remove(entry.key)


async def _stop(watcher: Any) -> None:
    try:
        await watcher.stop()
    except nats.errors.Error as error:
        log.debug("watch not stopped: %s", error)
