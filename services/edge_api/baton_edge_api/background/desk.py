"""What clients ask of responses in the background: to make one, what it is now, to cancel it.

Owns the order of the two places that know of it: the bucket until its end is kept, the books from then on.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress

import orjson
from starlette.types import ASGIApp

from baton_common.errors import RequestFailed
from baton_contracts.envelope import Tenant
from baton_edge_api.answers import NO_STORE, Answer
from baton_edge_api.background.records import BackgroundRecord
from baton_edge_api.background.runner import BackgroundRunner
from baton_edge_api.background.store import BackgroundStore
from baton_edge_api.background.viewing import Viewed, Viewers
from baton_edge_api.exchange import Exchange
from baton_edge_api.limits.admission import Admission
from baton_edge_api.question import Question
from baton_edge_api.refusals import bad_value
from baton_edge_api.responses.ids import new_key
from baton_edge_api.responses.response_question import ResponseQuestion
from baton_edge_api.side_endpoints import to_response

_CANCEL_SECONDS = 5.0
"""How long a cancel waits for the end that it brings about."""


class BackgroundDesk:
    def __init__(
        self,
        store: BackgroundStore,
        runner: BackgroundRunner,
        admission: Admission,
        viewers: Viewers,
        *,
        instance: str,
        max_bytes: int,
    ) -> None:
        self._store = store
        self._runner = runner
        self._admission = admission
        self._viewers = viewers
        self._max_bytes = max_bytes
        self._instance = instance

    async def accept(self, question: Question, tenant: Tenant, exchange: Exchange) -> ASGIApp | None:
        """What its client gets meanwhile; None: it is to be answered now. Raises RequestFailed."""
        assert isinstance(question, ResponseQuestion)
        wire = question.wire
        if not wire.background:
            return None
        if wire.store is False:
            raise bad_value("background", "needs store: what is made in the background is fetched later.")
        self._admission.check_model(tenant, wire.model)
        self._admission.show(tenant, exchange)
        key = new_key(exchange.request_id)
        response = question.queued(key, int(exchange.started))
        record = BackgroundRecord(
            key=key,
            tenant=tenant,
            model=wire.model,
            previous_response_id=wire.previous_response_id,
            ask=question.as_stream(),
            input=question.input_with_ids(key),
            body=orjson.dumps(response).decode(),
            created_at=exchange.started,
            owner=self._instance,
            streams=wire.stream is True,
        )
        self._check_size(record)
        if record.streams:
            return await self._accept_stream(record)
        await self._runner.accept(record)
        return to_response(Answer(200, orjson.dumps(record.object()), [NO_STORE]))

    async def _accept_stream(self, record: BackgroundRecord) -> ASGIApp:
        async with AsyncExitStack() as held:
            await self._viewers.turn(record.tenant.tenant_id, held)
            await self._runner.accept(record)
            viewed = Viewed(record.tenant.tenant_id, record.response_id, record.request_id)
            return await self._viewers.follow_new(viewed, record.begun(), held.pop_all())

    async def follow(self, viewed: Viewed, after: int) -> ASGIApp:
        """Its events behind that one; -1: all. Raises RequestFailed."""
        return await self._viewers.follow(viewed, after)

    async def forget(self, tenant_id: str, response_id: str) -> None:
        """The events of one whose end is kept."""
        await self._store.forget_events(tenant_id, response_id)

    def _check_size(self, record: BackgroundRecord) -> None:
        num_bytes = len(record.encode())
        if num_bytes > self._max_bytes:
            text = f"The request takes {num_bytes} bytes to keep; {self._max_bytes} fit. Send less text."
            raise RequestFailed.because("request_too_large", text, param="input")

    async def find(self, tenant_id: str, response_id: str) -> BackgroundRecord | None:
        """As long as its end is not kept."""
        return await self._store.find(tenant_id, response_id)

    async def cancel(self, tenant_id: str, response_id: str) -> BackgroundRecord | None:
        """As it is then. None: it has ended, or there never was one."""
        found = await self._store.find(tenant_id, response_id)
        if found is None:
            return None

        def change(present: BackgroundRecord) -> BackgroundRecord:
            return present.model_copy(update={"is_cancelled": True})

        with self._runner.mirror.leaving(found.entry) as leaving:
            if await self._store.change(found.entry, change):
                with suppress(TimeoutError):
                    await asyncio.wait_for(leaving.wait(), _CANCEL_SECONDS)
        return await self._store.find(tenant_id, response_id)
