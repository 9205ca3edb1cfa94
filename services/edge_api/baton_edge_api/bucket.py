"""A bucket as a place of versioned values: read one, replace it if it is still that version.

Owns the translation of the bus's errors: `Conflict` is a lost race, `BusError` that nobody knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Protocol

import nats.errors
import nats.js.errors
from nats.js.kv import KeyValue

from baton_common.buckets import open_bucket, read_bucket, reading_bucket
from baton_common.errors import BatonError, BusError, BusUnavailable
from baton_common.nats_bus import NatsBus

CALL_SECONDS = 2.0
NO_SPACE = 10077
"""JetStream's number for "maximum bytes exceeded"."""
_SILENCE_SECONDS = 0.5


class Conflict(BatonError):
    """Somebody else wrote first. Nothing was written."""


class BucketFull(BatonError):
    """There is no more space. Nothing was written."""


class Bucket(Protocol):
    async def read(self, entry: str) -> tuple[bytes, int]:
        """The value (empty: there is none) and its revision. Raises BusError."""
        ...

    async def replace(self, entry: str, value: bytes, revision: int) -> int:
        """The new revision. Raises Conflict; BusError if it is unknown whether it was written."""
        ...


class NatsBucket:
    def __init__(
        self, bus: NatsBus, name: str, *, keep_seconds: float | None = None, max_bytes: int | None = None
    ) -> None:
        """The bounds are those of a bucket that is made here."""
        self._bus = bus
        self._name = name
        self._keep_seconds = keep_seconds
        self._max_bytes = max_bytes
        self._bucket: KeyValue | None = None

    async def read(self, entry: str) -> tuple[bytes, int]:
        bucket = await self._open(entry)
        try:
            async with asyncio.timeout(CALL_SECONDS):
                found = await bucket.get(entry)
        except nats.js.errors.KeyDeletedError as error:
            return b"", (error.entry.revision or 0) if error.entry else 0
        except nats.js.errors.KeyNotFoundError:
            return b"", 0
        except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
            raise self._away(entry, error) from error
        return found.value or b"", found.revision or 0

    async def replace(self, entry: str, value: bytes, revision: int) -> int:
        bucket = await self._open(entry)
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return await bucket.update(entry, value, last=revision)
        except nats.js.errors.KeyWrongLastSequenceError as error:
            raise Conflict(entry) from error
        except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
            if getattr(error, "err_code", 0) == NO_SPACE:
                raise BucketFull(self._name) from error
            raise self._away(entry, error) from error

    async def remove(self, entry: str) -> None:
        """Without a trace but for those who watch. Raises BusError."""
        bucket = await self._open(entry)
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await bucket.delete(entry)
        except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
            raise self._away(entry, error) from error
        await self.purge(entry)

    async def purge(self, pattern: str) -> None:
        """Entries that match, without a trace; those who watch are not told. Raises BusError."""
        await self._open(pattern)
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await self._bus.jetstream.purge_stream(
                    f"KV_{self._name}", subject=f"$KV.{self._name}.{pattern}"
                )
        except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
            raise self._away(pattern, error) from error

    async def read_all(self, pattern: str) -> dict[str, bytes]:
        """All values whose entries match, by entry. Raises BusError."""
        await self._open(pattern)
        try:
            found = read_bucket(self._bus.jetstream, self._name, pattern)
            return {entry.name: entry.value or b"" async for entry in found}
        except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
            raise self._away(pattern, error) from error

    async def follow(self, pattern: str) -> AsyncGenerator[bytes | None, None]:
        """Values that match, in the order in which they were written; None once all that were there have been
        given, and after each silence of half a second. Ends when the connection is another one: then what was
        written meanwhile may have been missed. Close it if you leave early. Raises BusError."""
        await self._open(pattern)
        connection = self._bus.num_reconnects
        try:
            async with reading_bucket(self._bus.jetstream, self._name, pattern) as reading:
                async for entry in reading.first():
                    if entry.value is not None:
                        yield entry.value
                yield None
                while self._bus.num_reconnects == connection:
                    try:
                        yield (await reading.next(_SILENCE_SECONDS)).value
                    except nats.errors.TimeoutError:
                        yield None
        except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
            raise self._away(pattern, error) from error

    async def _open(self, entry: str) -> KeyValue:
        if not self._bus.connected:
            raise BusUnavailable(entry)
        if self._bucket is None:
            try:
                async with asyncio.timeout(CALL_SECONDS):
                    self._bucket = await open_bucket(
                        self._bus.jetstream,
                        self._name,
                        keep_seconds=self._keep_seconds,
                        max_bytes=self._max_bytes,
                    )
            except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
                raise self._away(entry, error) from error
        return self._bucket

    def _away(self, entry: str, error: BaseException) -> BusError:
        self._bucket = None  # the store may have been wiped: it is then made anew
        return BusError(entry, str(error) or type(error).__name__)
