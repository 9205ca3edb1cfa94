"""Keeps the key ring equal to the bucket `baton_keys`, for ever.

Owns the watch and what happens when the bus goes away: the ring serves from memory, and after a reconnect
the whole bucket is read again. Knows nothing of what an entry means.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import nats.errors
from nats.js import JetStreamContext
from nats.js.errors import BadRequestError, BucketNotFoundError
from nats.js.kv import KeyValue

from baton_common.nats_bus import NatsBus
from baton_contracts.subjects import BUCKET_KEYS
from baton_edge_api.keys import KeyRing

log = logging.getLogger(__name__)

RESYNC_SECONDS = 60.0
"""The bucket is read anew so often, in case a watch has died unnoticed."""


async def watch_keys(bus: NatsBus, ring: KeyRing) -> None:
    """Runs for ever; raises what the bus raises, so that its supervisor starts it again."""
    while True:
        bucket = await _open(bus.jetstream)
        await _follow(bus, bucket, ring)


async def wait_for_keys(ring: KeyRing, seconds: float) -> None:
    """Until the bucket was read once, but no longer: an edge that starts without it says what is missing."""
    try:
        async with asyncio.timeout(seconds):
            await ring.first_sync.wait()
    except TimeoutError:
        log.warning("the API keys could not be read within %.0f s; going on without them", seconds)


async def _open(jetstream: JetStreamContext) -> KeyValue:
    try:
        return await jetstream.key_value(BUCKET_KEYS)
    except BucketNotFoundError:
        log.info("making the bucket of API keys")
    try:
        return await jetstream.create_key_value(bucket=BUCKET_KEYS, history=1)
    except BadRequestError:  # another edge was faster
        return await jetstream.key_value(BUCKET_KEYS)


async def _follow(bus: NatsBus, bucket: KeyValue, ring: KeyRing) -> None:
    """Returns when the bucket should be read anew."""
    connection = bus.num_reconnects
    watcher: Any = await bucket.watchall()
    try:
        ring.replace(await _read_all(watcher))
        quiet = 0.0
        while bus.num_reconnects == connection and quiet < RESYNC_SECONDS:
            try:
                entry = cast("KeyValue.Entry | None", await watcher.updates(timeout=0.5))
            except nats.errors.TimeoutError:
                quiet += 0.5
            else:
                if entry is not None:
                    _apply(ring, entry)
    finally:
        await _stop(watcher)


async def _read_all(watcher: Any) -> dict[str, bytes]:
    entries: dict[str, bytes] = {}
    while (entry := cast("KeyValue.Entry | None", await watcher.updates(timeout=5))) is not None:
        if entry.operation is None and entry.value is not None:
            entries[entry.key] = entry.value
    return entries


def _apply(ring: KeyRing, entry: KeyValue.Entry) -> None:
    if entry.operation is None and entry.value is not None:
        ring.put(entry.key, entry.value)
    else:
        ring.remove(entry.key)


async def _stop(watcher: Any) -> None:
    try:
        await watcher.stop()
    except nats.errors.Error as error:
        log.debug("watch not stopped: %s", error)
