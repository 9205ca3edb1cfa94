"""The inbox: `ConsoleQuery` in, a page, a trace or the newest traces out. Decides who may see what."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

from baton_common.clock import Clock
from baton_common.errors import BusError, RequestFailed
from baton_contracts.envelope import Tenant
from baton_contracts.errors import ErrorBody
from baton_contracts.identifiers import parse_request_id
from baton_contracts.queries import ConsoleQuery, ConsoleReply
from baton_trace_console.archive import Archive
from baton_trace_console.list_question import ListAsked, parse_list
from baton_trace_console.pages import Pages
from baton_trace_console.trace_view import merge, summary, trace_object

_TRACES = "/v1/traces"


class Console:
    def __init__(self, archive: Archive, pages: Pages, clock: Clock) -> None:
        self._archive = archive
        self._pages = pages
        self._clock = clock

    async def answer(self, _request_id: str, query: ConsoleQuery) -> ConsoleReply:
        """Raises RequestFailed."""
        parts = urlsplit(query.path)
        if parts.path == _TRACES or parts.path.startswith(f"{_TRACES}/"):
            if query.tenant is None:
                raise RequestFailed.because("invalid_api_key", "Traces need an API key.")
            return await self._traces(parts.path, parts.query, query.tenant)
        page = self._pages.find(parts.path)
        if page is None:
            raise RequestFailed.because("not_found", "There is no such page.")
        return ConsoleReply(media_type=page.media_type, body=page.body)

    async def _traces(self, path: str, query: str, tenant: Tenant) -> ConsoleReply:
        try:
            if path == _TRACES:
                return _json(await self._newest(parse_list(query), tenant.tenant_id))
            return _json(await self._trace(path.removeprefix(f"{_TRACES}/"), tenant.tenant_id))
        except BusError as error:
            text = f"The store of traces is away ({error}). Try again shortly."
            raise RequestFailed(
                ErrorBody(code="bus_unavailable", message=text, stop="trace_console", retry_after_seconds=1)
            ) from None

    async def _trace(self, raw_id: str, tenant_id: str) -> dict[str, Any]:
        """Another tenant's trace and one that never was are the same to the one who asks."""
        request_id = parse_request_id(raw_id)
        spans = merge(await self._archive.batches_of(request_id), tenant_id) if request_id else []
        if not spans or request_id is None:
            text = "No trace with this id. A trace appears when the first stop is done and is kept for days."
            raise RequestFailed.because("not_found", text, param="id")
        return trace_object(request_id, spans, self._clock.wall())

    async def _newest(self, asked: ListAsked, tenant_id: str) -> dict[str, Any]:
        newest = await self._archive.newest_of(tenant_id, asked)
        batches = await self._archive.batches_of_all(newest.request_ids)
        merged = [(request_id, merge(told, tenant_id)) for request_id, told in batches]
        now = self._clock.wall()
        traces = [(request_id, summary(spans, now)) for request_id, spans in merged if spans]
        found = [
            {"request_id": request_id, "summary": told}
            for request_id, told in sorted(traces, key=lambda trace: -trace[1]["started_at"])
            if asked.status in (None, told["status"])
        ]
        next_page = newest.next_page and str(newest.next_page)
        return {"object": "list", "data": found, "has_more": bool(next_page), "next_page": next_page}


def _json(value: dict[str, Any]) -> ConsoleReply:
    return ConsoleReply(body=json.dumps(value, ensure_ascii=False, separators=(",", ":")))
