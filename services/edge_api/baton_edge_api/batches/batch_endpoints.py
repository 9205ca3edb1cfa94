"""/v1/batches: create, list, look up, cancel.

Owns what a client may ask of a batch. Running it is the runner's: the two speak through the batch's record.
"""

from __future__ import annotations

import re
import time

from starlette.requests import Request
from starlette.responses import Response

from baton_common.errors import RequestFailed
from baton_contracts.openai_batches import BatchRequest
from baton_edge_api.answers import json_answer
from baton_edge_api.batches.file_endpoints import find_file
from baton_edge_api.batches.pages import page
from baton_edge_api.batches.records import BatchRecord, new_batch_id
from baton_edge_api.batches.store import OfflineStore
from baton_edge_api.body import read_body
from baton_edge_api.exchange import exchange_of
from baton_edge_api.keys import KeyRing
from baton_edge_api.refusals import bad_value
from baton_edge_api.settings import EdgeSettings
from baton_edge_api.side_endpoints import to_response
from baton_edge_api.typed_body import parsed, typed, understood
from baton_edge_api.validation import ignored_names

_BATCH_ID = re.compile(r"batch_[0-9a-f]{24}")
_OUTPUT_SECONDS = 30 * 24 * 3600


class BatchEndpoints:
    def __init__(self, store: OfflineStore, ring: KeyRing, settings: EdgeSettings) -> None:
        self._store = store
        self._ring = ring
        self._settings = settings

    async def create(self, request: Request) -> Response:
        tenant = self._ring.caller_of(request.scope)
        settings = self._settings
        body = await read_body(
            request.scope, request.receive, limit=settings.max_body_bytes, seconds=settings.body_timeout
        )
        exchange_of(request.scope).body_read = True
        wire = await understood(body, lambda given: _read(given, strict=settings.strict))
        file = await find_file(self._store, tenant.tenant_id, wire.input_file_id, "input_file_id")
        if file.purpose != "batch":
            raise bad_value("input_file_id", f"this file's purpose is {file.purpose}; it must be batch.")
        present = await self._store.batches(tenant.tenant_id)
        if sum(batch.is_active for batch in present) >= settings.max_tenant_batches:
            text = (
                f"{settings.max_tenant_batches} of your batches are not done yet. Wait for one, or cancel it."
            )
            raise RequestFailed.because("rate_limit_exceeded", text)
        now = int(time.time())
        after = wire.output_expires_after
        record = BatchRecord(
            id=new_batch_id(),
            tenant=tenant,
            endpoint=wire.endpoint,
            input_file_id=file.id,
            metadata=wire.metadata,
            output_seconds=after.seconds if after else _OUTPUT_SECONDS,
            created_at=now,
            expires_at=now + settings.batch_window_seconds,
        )
        await self._store.add_batch(record)
        return to_response(json_answer(record.object()))

    async def list(self, request: Request) -> Response:
        tenant = self._ring.caller_of(request.scope)
        batches = await self._store.batches(tenant.tenant_id)
        return to_response(
            json_answer(page(batches, request.query_params, most=100, default=20, orders=False))
        )

    async def get(self, request: Request) -> Response:
        return to_response(json_answer((await self._wanted(request)).object()))

    async def cancel(self, request: Request) -> Response:
        record = await self._wanted(request)
        changed = await self._store.change_batch(record, _cancelling)
        if changed is None:
            raise _missing()
        if changed.status not in ("cancelling", "cancelled"):
            text = f"This batch is {changed.status}: it can't be cancelled any more."
            raise RequestFailed.because("conflict", text)
        return to_response(json_answer(changed.object()))

    async def _wanted(self, request: Request) -> BatchRecord:
        tenant, wanted = self._ring.caller_of(request.scope), request.path_params["batch_id"]
        if not _BATCH_ID.fullmatch(wanted):
            raise _missing()
        record = await self._store.batch(tenant.tenant_id, wanted)
        if record is None:
            raise _missing()
        return record


def _cancelling(present: BatchRecord) -> BatchRecord | None:
    if present.status not in ("validating", "in_progress"):
        return None
    return present.now("cancelling", time.time())


def _missing() -> RequestFailed:
    return RequestFailed.because("not_found", "There is no such batch.", param="batch_id")


def _read(body: bytes, *, strict: bool) -> BatchRequest:
    wire = typed(BatchRequest, parsed(body))
    ignored_names(wire, strict=strict)
    return wire
