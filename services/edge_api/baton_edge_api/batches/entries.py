"""The bucket `baton_batches` and the object store `baton_files`, as places of records.

Owns the translation of the bus's errors, and what becomes of a record that can't be read. Knows nothing of
what an entry means.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import aclosing, contextmanager
from typing import TypeVar

import nats.errors
import nats.js.errors
from nats.js.errors import (
    BadRequestError,
    BucketNotFoundError,
    KeyNotFoundError,
    KeyWrongLastSequenceError,
    ObjectDeletedError,
    ObjectNotFoundError,
)
from nats.js.kv import KeyValue
from nats.js.object_store import ObjectStore

from baton_common.buckets import BucketEntry, open_bucket, read_bucket
from baton_common.errors import RequestFailed
from baton_common.nats_bus import NatsBus
from baton_contracts.base import MalformedMessage, WireModel
from baton_contracts.errors import ErrorBody
from baton_contracts.subjects import BUCKET_BATCHES, STORE_FILES
from baton_edge_api.bucket import NO_SPACE

log = logging.getLogger(__name__)

NOT_THERE = (KeyNotFoundError, ObjectNotFoundError, ObjectDeletedError)

M = TypeVar("M", bound=WireModel)


class Entries:
    def __init__(self, bus: NatsBus, max_bytes: int) -> None:
        """`max_bytes`: of all files together."""
        self._bus = bus
        self._max_bytes = max_bytes
        self._bucket: KeyValue | None = None
        self._objects: ObjectStore | None = None

    async def _read(self, key: str) -> KeyValue.Entry | None:
        with self._reaching():
            try:
                return await (await self._entries()).get(key)
            except KeyNotFoundError:
                return None

    async def _all(self, pattern: str) -> list[bytes]:
        return [entry.value or b"" async for entry in self._each(pattern)]

    async def _each(self, pattern: str, *, names_only: bool = False) -> AsyncGenerator[BucketEntry, None]:
        """The entries that are there now."""
        with self._reaching():
            await self._entries()
            entries = read_bucket(self._bus.jetstream, BUCKET_BATCHES, pattern, names_only=names_only)
            async with aclosing(entries):
                async for entry in entries:
                    yield entry

    async def _entries(self) -> KeyValue:
        if self._bucket is None:
            self._bucket = await open_bucket(self._bus.jetstream, BUCKET_BATCHES)
        return self._bucket

    @contextmanager
    def _reaching(self) -> Generator[None, None, None]:
        """What the bus raises becomes RequestFailed; what the store says of an entry stays as it is."""
        if not self._bus.connected:
            raise _away("the bus is not connected")
        try:
            yield
        except (*NOT_THERE, KeyWrongLastSequenceError):
            raise
        except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
            if getattr(error, "err_code", 0) == NO_SPACE:
                text = (
                    f"The store of files is full ({self._max_bytes} bytes). Remove files that are done with."
                )
                raise RequestFailed.because("request_too_large", text, param="file") from error
            self._bucket = self._objects = None  # the store may have been wiped: it is then made anew
            raise _away(str(error) or type(error).__name__) from error

    async def _files(self) -> ObjectStore:
        if self._objects is None:
            jetstream = self._bus.jetstream
            try:
                self._objects = await jetstream.object_store(STORE_FILES)
            except BucketNotFoundError:
                try:
                    self._objects = await jetstream.create_object_store(
                        STORE_FILES, config=None, max_bytes=self._max_bytes
                    )
                except BadRequestError:  # another edge was faster
                    self._objects = await jetstream.object_store(STORE_FILES)
        return self._objects


def readable(model: type[M], value: bytes) -> M | None:
    """None: for clients it is as if it were not there; it stays, for the version of Baton that wrote it."""
    try:
        return model.decode(value)
    except MalformedMessage as error:
        log.debug("an entry can't be read: %s", error)
        return None


def all_readable(model: type[M], values: Iterable[bytes]) -> list[M]:
    return [record for value in values if (record := readable(model, value))]


def _away(reason: str) -> RequestFailed:
    text = f"Files and batches can't be reached now ({reason}). Try again shortly."
    error = ErrorBody(code="bus_unavailable", message=text, stop="edge_api", retry_after_seconds=1)
    return RequestFailed(error)
