"""Where files, batches and finished lines are: the bucket `baton_batches` and the object store `baton_files`.

    file.TENANT.ID     what is known of a file          batch.TENANT.ID   a batch
    line.BATCH.N       the result of line N             leader            who runs batches now

A file is there when its entry in the bucket is: contents are written before it and removed after it. Owns the
names and the translation of the bus's errors; an entry is only changed if it is still as it was read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import aclosing, contextmanager
from datetime import datetime
from tempfile import SpooledTemporaryFile
from typing import IO, Any, TypeVar, cast

import nats.errors
import nats.js.errors
from nats.js.errors import (
    BadRequestError,
    BucketNotFoundError,
    KeyNotFoundError,
    KeyWrongLastSequenceError,
    NotFoundError,
    ObjectDeletedError,
    ObjectNotFoundError,
)
from nats.js.kv import KeyValue
from nats.js.object_store import ObjectStore

from baton_common.buckets import open_bucket, read_bucket
from baton_common.errors import RequestFailed
from baton_common.nats_bus import NatsBus
from baton_contracts.base import MalformedMessage, WireModel
from baton_contracts.errors import ErrorBody
from baton_contracts.identifiers import subject_token
from baton_contracts.subjects import BUCKET_BATCHES, STORE_FILES
from baton_edge_api.batches.records import BatchRecord, FileRecord
from baton_edge_api.bucket import NO_SPACE

log = logging.getLogger(__name__)

_STREAM = f"KV_{BUCKET_BATCHES}"
_IN_MEMORY_BYTES = 1024 * 1024
_NOT_THERE = (KeyNotFoundError, ObjectNotFoundError, ObjectDeletedError)

M = TypeVar("M", bound=WireModel)
Change = Callable[[BatchRecord], BatchRecord | None]
"""The record as it should be; None: leave it."""


class OfflineStore:
    def __init__(self, bus: NatsBus, max_bytes: int) -> None:
        """`max_bytes`: of all files together."""
        self._bus = bus
        self._max_bytes = max_bytes
        self._bucket: KeyValue | None = None
        self._objects: ObjectStore | None = None

    # Files

    async def add_file(self, record: FileRecord, content: IO[bytes]) -> None:
        """Raises RequestFailed: no space, or the bus is away."""
        with self._reaching():
            store = await self._files()
            await store.put(record.id, cast("Any", content))
            await (await self._entries()).put(_file(record.tenant_id, record.id), record.encode())

    async def file(self, tenant_id: str, file_id: str) -> FileRecord | None:
        found = await self._read(_file(tenant_id, file_id))
        return _readable(FileRecord, found.value or b"") if found else None

    async def files(self, tenant_id: str) -> list[FileRecord]:
        return _all_readable(FileRecord, await self._all(_file(tenant_id, "*")))

    async def all_files(self) -> list[FileRecord]:
        return _all_readable(FileRecord, await self._all("file.*.*"))

    async def file_ids(self) -> set[str]:
        """Of all entries, those too that can't be read."""
        return {name.split(".")[2] async for name, _ in self._each("file.*.*", names_only=True)}

    async def open_file(self, file_id: str) -> IO[bytes]:
        """Its contents, on disk if large; close it. Raises RequestFailed."""
        content = SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115  # the caller closes it
        try:
            with self._reaching():
                async with asyncio.timeout(600):
                    await (await self._files()).get(file_id, writeinto=cast("Any", content))
        except _NOT_THERE:
            content.close()
            raise RequestFailed.because("not_found", "The contents of this file are gone.") from None
        except BaseException:
            content.close()
            raise
        content.seek(0)
        return cast("IO[bytes]", content)

    async def remove_file(self, tenant_id: str, file_id: str) -> None:
        with self._reaching():
            await (await self._entries()).purge(_file(tenant_id, file_id))
        await self.remove_contents(file_id)

    async def contents(self) -> list[tuple[str, float]]:
        """Id and Unix time of all contents, with an entry or without."""
        with self._reaching():
            try:
                found = await (await self._files()).list(ignore_deletes=True)
            except NotFoundError:
                return []
        return [(info.name, _unix_time(info.mtime)) for info in found]

    async def remove_contents(self, file_id: str) -> None:
        with self._reaching():
            try:
                await (await self._files()).delete(file_id)
            except _NOT_THERE:
                log.debug("contents of %s were gone already", file_id)

    # Batches

    async def add_batch(self, record: BatchRecord) -> None:
        with self._reaching():
            await (await self._entries()).create(_batch(record), record.encode())

    async def batch(self, tenant_id: str, batch_id: str) -> BatchRecord | None:
        found = await self._read(f"batch.{subject_token(tenant_id)}.{batch_id}")
        return _readable(BatchRecord, found.value or b"") if found else None

    async def batches(self, tenant_id: str) -> list[BatchRecord]:
        return _all_readable(BatchRecord, await self._all(f"batch.{subject_token(tenant_id)}.*"))

    async def all_batches(self) -> list[BatchRecord]:
        return _all_readable(BatchRecord, await self._all("batch.*.*"))

    async def batch_ids(self) -> set[str]:
        """Of all entries, those too that can't be read."""
        return {name.split(".")[2] async for name, _ in self._each("batch.*.*", names_only=True)}

    async def change_batch(self, record: BatchRecord, change: Change) -> BatchRecord | None:
        """The batch as it is now, changed or not; None if it is gone. `change` may be called repeatedly."""
        while True:
            found = await self._read(_batch(record))
            if found is None:
                return None
            present = _readable(BatchRecord, found.value or b"")
            wanted = change(present) if present else None
            if wanted is None:
                return present
            with self._reaching():
                try:
                    await (await self._entries()).update(_batch(record), wanted.encode(), last=found.revision)
                except KeyWrongLastSequenceError:
                    continue
            return wanted

    async def remove_batch(self, record: BatchRecord) -> None:
        with self._reaching():
            await (await self._entries()).purge(_batch(record))

    # Lines

    async def add_line(self, batch_id: str, number: int, result: bytes) -> bool:
        """False if the line has a result already: the first one counts."""
        with self._reaching():
            try:
                await (await self._entries()).create(f"line.{batch_id}.{number}", result)
            except KeyWrongLastSequenceError:
                return False
        return True

    async def lines(self, batch_id: str) -> AsyncGenerator[tuple[int, bytes], None]:
        """Number and result of each finished line, in the order in which they finished."""
        async for name, result in self._each(f"line.{batch_id}.*"):
            yield int(name.rsplit(".", 1)[-1]), result

    async def batches_with_lines(self) -> set[str]:
        return {name.split(".")[1] async for name, _ in self._each("line.*.*", names_only=True)}

    async def drop_lines(self, batch_id: str) -> None:
        with self._reaching():
            await self._entries()
            await self._bus.jetstream.purge_stream(_STREAM, subject=f"$KV.{BUCKET_BATCHES}.line.{batch_id}.>")

    # The leader

    async def leader(self) -> tuple[str, int]:
        """Who says that it runs batches (empty: nobody), and the revision of that word."""
        found = await self._read("leader")
        return ((found.value or b"").decode(), found.revision or 0) if found else ("", 0)

    async def take_lead(self, instance: str, revision: int) -> int | None:
        """The new revision; None if somebody else was faster. `revision` 0: nobody had it."""
        with self._reaching():
            entries = await self._entries()
            try:
                if not revision:
                    return await entries.create("leader", instance.encode())
                return await entries.update("leader", instance.encode(), last=revision)
            except KeyWrongLastSequenceError:
                return None

    async def give_up_lead(self, revision: int) -> None:
        with self._reaching():
            try:
                await (await self._entries()).delete("leader", last=revision)
            except KeyWrongLastSequenceError:
                log.debug("somebody else leads already")

    # The bus

    async def _read(self, key: str) -> KeyValue.Entry | None:
        with self._reaching():
            try:
                return await (await self._entries()).get(key)
            except KeyNotFoundError:
                return None

    async def _all(self, pattern: str) -> list[bytes]:
        return [value async for _, value in self._each(pattern)]

    async def _each(
        self, pattern: str, *, names_only: bool = False
    ) -> AsyncGenerator[tuple[str, bytes], None]:
        """Name and value of the entries that are there now."""
        with self._reaching():
            await self._entries()
            entries = read_bucket(self._bus.jetstream, BUCKET_BATCHES, pattern, names_only=names_only)
            async with aclosing(entries):
                async for entry in entries:
                    yield entry.name, entry.value or b""

    async def _entries(self) -> KeyValue:
        if self._bucket is None:
            self._bucket = await open_bucket(self._bus.jetstream, BUCKET_BATCHES)
        return self._bucket

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

    @contextmanager
    def _reaching(self) -> Generator[None, None, None]:
        """What the bus raises becomes RequestFailed; what the store says of an entry stays as it is."""
        if not self._bus.connected:
            raise _away("the bus is not connected")
        try:
            yield
        except (*_NOT_THERE, KeyWrongLastSequenceError):
            raise
        except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
            if getattr(error, "err_code", 0) == NO_SPACE:
                text = (
                    f"The store of files is full ({self._max_bytes} bytes). Remove files that are done with."
                )
                raise RequestFailed.because("request_too_large", text, param="file") from error
            self._bucket = self._objects = None  # the store may have been wiped: it is then made anew
            raise _away(str(error) or type(error).__name__) from error


def _unix_time(text: str | None) -> float:
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def _readable(model: type[M], value: bytes) -> M | None:
    """None: for clients it is as if it were not there; it stays, for the version of Baton that wrote it."""
    try:
        return model.decode(value)
    except MalformedMessage as error:
        log.debug("an entry can't be read: %s", error)
        return None


def _all_readable(model: type[M], values: Iterable[bytes]) -> list[M]:
    return [record for value in values if (record := _readable(model, value))]


def _file(tenant_id: str, file_id: str) -> str:
    return f"file.{subject_token(tenant_id)}.{file_id}"


def _batch(record: BatchRecord) -> str:
    return f"batch.{subject_token(record.tenant.tenant_id)}.{record.id}"


def _away(reason: str) -> RequestFailed:
    text = f"Files and batches can't be reached now ({reason}). Try again shortly."
    error = ErrorBody(code="bus_unavailable", message=text, stop="edge_api", retry_after_seconds=1)
    return RequestFailed(error)
