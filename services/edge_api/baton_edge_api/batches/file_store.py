"""Where files are: contents in the object store `baton_files`, what is known of them in `baton_batches`.

    file.TENANT.ID     what is known of a file
    coming.TENANT.ID   a file on its way into the store: it takes space already

A file is there when its entry is: contents are written before it and removed after it. Owns these names.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from tempfile import SpooledTemporaryFile
from typing import IO, Any, cast

from nats.js.errors import NotFoundError

from baton_common.errors import RequestFailed
from baton_contracts.identifiers import subject_token
from baton_edge_api.batches.entries import NOT_THERE, Entries, all_readable, readable
from baton_edge_api.batches.records import FileRecord

log = logging.getLogger(__name__)

COMING_SECONDS = 1200.0
"""An announced file counts so long; it is stored in half of that, or not at all."""
_IN_MEMORY_BYTES = 1024 * 1024


class FileStore(Entries):
    async def add_file(self, record: FileRecord, content: IO[bytes]) -> None:
        """Raises RequestFailed: no space, or the bus is away."""
        with self._reaching():
            store = await self._files()
            async with asyncio.timeout(COMING_SECONDS / 2):
                await store.put(record.id, cast("Any", content))
            await (await self._entries()).put(_file(record.tenant_id, record.id), record.encode())

    async def announce(self, record: FileRecord) -> int:
        """Its space is taken from here on, for a while. Returns its place among those that come in."""
        with self._reaching():
            return await (await self._entries()).put(_coming(record.tenant_id, record.id), record.encode())

    async def withdraw(self, record: FileRecord) -> None:
        """It is a file now, or never will be one."""
        with self._reaching():
            await (await self._entries()).purge(_coming(record.tenant_id, record.id))

    async def used_bytes(self, tenant_id: str, place: int, now: float) -> int:
        """Of a tenant's files, and of those that were announced before that place. These are read first: one
        that is stored meanwhile is found in either."""
        known: dict[str, int] = {}
        async for entry in self._each(_coming(tenant_id, "*")):
            record = readable(FileRecord, entry.value or b"")
            if record and entry.revision < place and now - record.created_at < COMING_SECONDS:
                known[record.id] = record.num_bytes
        for record in await self.files(tenant_id):
            if not record.expired(now):
                known[record.id] = record.num_bytes
        return sum(known.values())

    async def drop_old_announcements(self, now: float) -> None:
        async for entry in self._each("coming.*.*"):
            record = readable(FileRecord, entry.value or b"")
            if record is None or now - record.created_at > COMING_SECONDS:
                with self._reaching():
                    await (await self._entries()).purge(entry.name)

    async def file(self, tenant_id: str, file_id: str) -> FileRecord | None:
        found = await self._read(_file(tenant_id, file_id))
        return readable(FileRecord, found.value or b"") if found else None

    async def files(self, tenant_id: str) -> list[FileRecord]:
        return all_readable(FileRecord, await self._all(_file(tenant_id, "*")))

    async def all_files(self) -> list[FileRecord]:
        return all_readable(FileRecord, await self._all("file.*.*"))

    async def file_ids(self) -> set[str]:
        """Of all entries, those too that can't be read."""
        return {entry.name.split(".")[2] async for entry in self._each("file.*.*", names_only=True)}

    async def open_file(self, file_id: str) -> IO[bytes]:
        """Its contents, on disk if large; close it. Raises RequestFailed."""
        content = SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115  # the caller closes it
        try:
            with self._reaching():
                async with asyncio.timeout(600):
                    await (await self._files()).get(file_id, writeinto=cast("Any", content))
        except NOT_THERE:
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
            except NOT_THERE:
                log.debug("contents of %s were gone already", file_id)


def _unix_time(text: str | None) -> float:
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def _file(tenant_id: str, file_id: str) -> str:
    return f"file.{subject_token(tenant_id)}.{file_id}"


def _coming(tenant_id: str, file_id: str) -> str:
    return f"coming.{subject_token(tenant_id)}.{file_id}"
