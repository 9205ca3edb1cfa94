"""Where batches, their finished lines and the lead are: the bucket `baton_batches`.

    batch.TENANT.ID    a batch             line.BATCH.N       the result of line N
    leader             who runs batches now

Owns these names; an entry is only changed if it is still as it was read.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable

from nats.js.errors import KeyWrongLastSequenceError

from baton_contracts.identifiers import subject_token
from baton_contracts.subjects import BUCKET_BATCHES
from baton_edge_api.batches.entries import all_readable, readable
from baton_edge_api.batches.file_store import FileStore
from baton_edge_api.batches.records import BatchRecord

log = logging.getLogger(__name__)

_STREAM = f"KV_{BUCKET_BATCHES}"

Change = Callable[[BatchRecord], BatchRecord | None]
"""The record as it should be; None: leave it."""


class OfflineStore(FileStore):
    """Files, and the batches that are made of them."""

    # Batches

    async def add_batch(self, record: BatchRecord) -> None:
        with self._reaching():
            await (await self._entries()).create(_batch(record), record.encode())

    async def batch(self, tenant_id: str, batch_id: str) -> BatchRecord | None:
        found = await self._read(f"batch.{subject_token(tenant_id)}.{batch_id}")
        return readable(BatchRecord, found.value or b"") if found else None

    async def batches(self, tenant_id: str) -> list[BatchRecord]:
        return all_readable(BatchRecord, await self._all(f"batch.{subject_token(tenant_id)}.*"))

    async def all_batches(self) -> list[BatchRecord]:
        return all_readable(BatchRecord, await self._all("batch.*.*"))

    async def batch_ids(self) -> set[str]:
        """Of all entries, those too that can't be read."""
        return {entry.name.split(".")[2] async for entry in self._each("batch.*.*", names_only=True)}

    async def change_batch(self, record: BatchRecord, change: Change) -> BatchRecord | None:
        """The batch as it is now, changed or not; None if it is gone. `change` may be called repeatedly."""
        while True:
            found = await self._read(_batch(record))
            if found is None:
                return None
            present = readable(BatchRecord, found.value or b"")
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
        async for entry in self._each(f"line.{batch_id}.*"):
            yield int(entry.name.rsplit(".", 1)[-1]), entry.value or b""

    async def batches_with_lines(self) -> set[str]:
        return {entry.name.split(".")[1] async for entry in self._each("line.*.*", names_only=True)}

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


def _batch(record: BatchRecord) -> str:
    return f"batch.{subject_token(record.tenant.tenant_id)}.{record.id}"
