"""Key-value buckets of NATS: made where they are missing, read whole, followed.

Owns the consumer behind a reading: how many entries there were when it began, and that it goes when the
reading does. nats-py's own `watch` leaves its consumer behind for minutes, and a stream takes a thousand; and
it takes a bucket for empty when the server's word on the consumer overtakes the first entry. Knows nothing of
what an entry means.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import nats.errors
import nats.js.errors
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import DeliverPolicy
from nats.js.errors import BadRequestError, BucketNotFoundError
from nats.js.kv import KeyValue

log = logging.getLogger(__name__)

_LEFT_BEHIND_SECONDS = 30.0
"""A reader that dies leaves its consumer for so long."""
_SILENCE_SECONDS = 1.0
_MOST_SILENCES = 10
_REMOVED = ("KV-Operation", "Nats-Marker-Reason")
"""Headers of an entry that says that there is none."""


@dataclass(frozen=True, slots=True)
class BucketEntry:
    name: str
    value: bytes | None
    """None: it was removed. Empty where only names are read."""
    revision: int


async def open_bucket(
    jetstream: JetStreamContext,
    name: str,
    *,
    keep_seconds: float | None = None,
    max_bytes: int | None = None,
) -> KeyValue:
    """Made within these bounds, if nobody has yet."""
    try:
        return await jetstream.key_value(name)
    except BucketNotFoundError:
        log.info("making the bucket %s", name)
    try:
        return await jetstream.create_key_value(bucket=name, history=1, ttl=keep_seconds, max_bytes=max_bytes)
    except BadRequestError:  # another process was faster
        return await jetstream.key_value(name)


class BucketReading:
    """The last word on each name, then what is said afterwards."""

    def __init__(self, subscription: JetStreamContext.PushSubscription, prefix: str) -> None:
        self._subscription = subscription
        self._prefix = prefix
        self._num_heard = 0

    async def next(self, seconds: float) -> BucketEntry:
        """Raises nats.errors.TimeoutError after so many seconds of silence."""
        return self._entry(await self._hear(seconds))

    async def first(self) -> AsyncGenerator[BucketEntry, None]:
        """Those that were there when the reading began. Before anything else. Raises what the bus raises."""
        num_first, num_silences = await self._num_told_or_waiting(), 0
        while self._num_heard < num_first:
            try:
                message = await self._hear(_SILENCE_SECONDS)
            except nats.errors.TimeoutError:
                num_silences += 1
                if num_silences == _MOST_SILENCES:
                    raise
                num_first = await self._num_told_or_waiting()  # what waited may have been purged
                continue
            yield self._entry(message)
            if message.metadata.num_pending == 0:
                return

    async def _hear(self, seconds: float) -> Msg:
        message = await self._subscription.next_msg(timeout=seconds)
        self._num_heard += 1
        return message

    async def _num_told_or_waiting(self) -> int:
        info = await self._subscription.consumer_info()
        told = info.delivered.consumer_seq if info.delivered else 0
        return told + (info.num_pending or 0)

    def _entry(self, message: Msg) -> BucketEntry:
        removed = any(name in (message.headers or {}) for name in _REMOVED)
        name = message.subject.removeprefix(self._prefix)
        return BucketEntry(name, None if removed else message.data, message.metadata.sequence.stream)


@asynccontextmanager
async def reading_bucket(
    jetstream: JetStreamContext, bucket: str, pattern: str = ">", *, names_only: bool = False
) -> AsyncGenerator[BucketReading, None]:
    """`pattern`: which names, as in a subject. Raises what the bus raises."""
    stream, prefix = f"KV_{bucket}", f"$KV.{bucket}."
    subscription = await jetstream.subscribe(
        prefix + pattern,
        stream=stream,
        ordered_consumer=True,
        deliver_policy=DeliverPolicy.LAST_PER_SUBJECT,
        headers_only=names_only,
        inactive_threshold=_LEFT_BEHIND_SECONDS,
    )
    try:
        yield BucketReading(subscription, prefix)
    finally:
        await _end(jetstream, subscription, stream)


async def read_bucket(
    jetstream: JetStreamContext, bucket: str, pattern: str = ">", *, names_only: bool = False
) -> AsyncGenerator[BucketEntry, None]:
    """The entries that are there now. Close it if you leave early."""
    async with reading_bucket(jetstream, bucket, pattern, names_only=names_only) as reading:
        async for entry in reading.first():
            if entry.value is not None:
                yield entry


async def _end(
    jetstream: JetStreamContext, subscription: JetStreamContext.PushSubscription, stream: str
) -> None:
    try:
        await subscription.unsubscribe()
        async with asyncio.timeout(1):  # a bus that is away would be waited for
            await jetstream.delete_consumer(stream, (await subscription.consumer_info()).name)
    except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
        log.debug("consumer of %s is left to its time: %s", stream, error)
