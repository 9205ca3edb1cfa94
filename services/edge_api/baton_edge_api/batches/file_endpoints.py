"""/v1/files: upload, list, look up, fetch, remove.

Owns who may see which file: the tenant that it belongs to. Anybody else gets the 404 of a file that isn't.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from typing import IO, get_args
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from baton_common.errors import RequestFailed
from baton_contracts.openai_batches import StoredPurpose
from baton_edge_api.answers import NO_STORE, HeaderList, json_answer
from baton_edge_api.batches.pages import page
from baton_edge_api.batches.records import FileRecord, new_file_id
from baton_edge_api.batches.store import OfflineStore
from baton_edge_api.batches.uploads import UploadLimits, upload
from baton_edge_api.exchange import exchange_of
from baton_edge_api.keys import KeyRing
from baton_edge_api.piecewise import PiecewiseAnswer, head_of
from baton_edge_api.refusals import bad_value
from baton_edge_api.settings import EdgeSettings
from baton_edge_api.side_endpoints import to_response
from baton_edge_api.turns import Turns

_FILE_ID = re.compile(r"file-[0-9a-f]{24}")
_PIECE_BYTES = 256 * 1024
_BATCH_FILE_SECONDS = 30 * 24 * 3600
"""Files of batches go by themselves after so long, as they do elsewhere."""


class FileEndpoints:
    def __init__(self, store: OfflineStore, ring: KeyRing, settings: EdgeSettings) -> None:
        self._store = store
        self._ring = ring
        self._settings = settings
        self._uploads = Turns(settings.max_uploads, settings.max_tenant_uploads, "uploads")
        self._downloads = Turns(settings.max_uploads, settings.max_tenant_uploads, "downloads")
        self.limits = UploadLimits(
            settings.max_file_bytes, settings.upload_timeout, settings.body_timeout / 3, settings.strict
        )

    async def create(self, request: Request) -> Response:
        tenant = self._ring.caller_of(request.scope)
        async with self._uploads.turn(tenant.tenant_id):
            record = await self._take(request, tenant.tenant_id)
        return to_response(json_answer(record.object()))

    async def _take(self, request: Request, tenant_id: str) -> FileRecord:
        async with upload(request.scope, request.receive, self.limits) as given:
            exchange_of(request.scope).body_read = True
            now = int(time.time())
            seconds = given.expires_after or (_BATCH_FILE_SECONDS if given.purpose == "batch" else None)
            record = FileRecord(
                id=new_file_id(),
                tenant_id=tenant_id,
                filename=given.filename,
                purpose=given.purpose,
                num_bytes=given.num_bytes,
                created_at=now,
                expires_at=now + seconds if seconds else None,
            )
            async with self._space(record):
                await self._store.add_file(record, given.content)
        return record

    @asynccontextmanager
    async def _space(self, record: FileRecord) -> AsyncGenerator[None, None]:
        """Raises RequestFailed if it is taken, also by files that came before this one at any edge and are
        still on their way into the store; within the block it is this file's."""
        num_bytes, most = record.num_bytes, self._settings.max_tenant_file_bytes
        place = await self._store.announce(record)
        try:
            used = await self._store.used_bytes(record.tenant_id, place, time.time())
            if used + num_bytes > most:
                text = f"Your files take {used} of {most} bytes, and this one {num_bytes}. Remove some first."
                raise RequestFailed.because("request_too_large", text, param="file")
            yield
        finally:
            with suppress(RequestFailed):  # it counts for nothing soon
                await self._store.withdraw(record)

    async def list(self, request: Request) -> Response:
        tenant = self._ring.caller_of(request.scope)
        purpose = request.query_params.get("purpose")
        if purpose is not None and purpose not in get_args(StoredPurpose):
            raise bad_value("purpose", f"must be one of {', '.join(get_args(StoredPurpose))}.")
        files = [
            record
            for record in await self._files(tenant.tenant_id)
            if purpose is None or record.purpose == purpose
        ]
        return to_response(json_answer(page(files, request.query_params, most=10_000, default=10_000)))

    async def get(self, request: Request) -> Response:
        return to_response(json_answer((await self._wanted(request)).object()))

    async def content(self, request: Request) -> Response:
        record = await self._wanted(request)
        name = quote(record.filename, safe="")
        headers: HeaderList = [
            (b"content-type", b"application/octet-stream"),
            (b"content-length", str(record.num_bytes).encode()),
            (b"content-disposition", f"attachment; filename*=UTF-8''{name}".encode()),
            (b"x-content-type-options", b"nosniff"),
            NO_STORE,
        ]
        if request.method == "HEAD":  # nothing is fetched for it
            return head_of(headers)
        async with AsyncExitStack() as held:
            await held.enter_async_context(self._downloads.turn(record.tenant_id))
            content = held.enter_context(await self._store.open_file(record.id))
            pieces = await held.enter_async_context(aclosing(_pieces(content)))
            return PiecewiseAnswer(pieces, headers, held.pop_all(), self._settings.write_timeout)

    async def delete(self, request: Request) -> Response:
        record = await self._wanted(request)
        await self._store.remove_file(record.tenant_id, record.id)
        return to_response(json_answer({"id": record.id, "object": "file", "deleted": True}))

    async def _files(self, tenant_id: str) -> list[FileRecord]:
        now = time.time()
        return [record for record in await self._store.files(tenant_id) if not record.expired(now)]

    async def _wanted(self, request: Request) -> FileRecord:
        tenant = self._ring.caller_of(request.scope)
        return await find_file(self._store, tenant.tenant_id, request.path_params["file_id"], "file_id")


async def _pieces(content: IO[bytes]) -> AsyncGenerator[bytes, None]:
    while piece := await asyncio.to_thread(content.read, _PIECE_BYTES):
        yield piece


async def find_file(store: OfflineStore, tenant_id: str, file_id: str, param: str) -> FileRecord:
    """Raises RequestFailed."""
    record = await store.file(tenant_id, file_id) if _FILE_ID.fullmatch(file_id) else None
    if record is None or record.expired(time.time()):
        raise RequestFailed.because("not_found", "There is no such file.", param=param)
    return record
