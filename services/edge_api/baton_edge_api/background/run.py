"""One response, from queued until its end is kept.

    queued ─► in_progress ─► completed, incomplete, failed
       └───────────┴──────► cancelled            (given up: another edge makes it anew)

The answer is a request of the edge to itself, so limits, traces and the record of its end are those of any
other. Owns when it is asked again, and the end of one whose answer never began. What is kept first counts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.types import ASGIApp

from baton_common.errors import RequestFailed
from baton_common.tasks import spawn
from baton_contracts.errors import ErrorBody
from baton_contracts.records import ResponseRecord, ResponseStatus
from baton_edge_api.background.event_log import EventLog
from baton_edge_api.background.records import BackgroundRecord
from baton_edge_api.background.store import BackgroundStore
from baton_edge_api.background.told_output import told_output
from baton_edge_api.exchange import Inside, Promise
from baton_edge_api.inside import InsideAnswer, InsideCall, Tries, unless
from baton_edge_api.record_log import RecordLog
from baton_edge_api.responses.books_desk import BooksDesk
from baton_edge_api.responses.response_object import error_object

log = logging.getLogger(__name__)

MAX_STARTS = 4
"""Edges that may take it one after the other: what ends each edge that makes it is not tried for ever."""
_AGAIN_SECONDS = 1.0
_STORE_SECONDS = 5.0


@dataclass(frozen=True)
class RunParts:
    """What a run needs of the process."""

    instance: str
    store: BackgroundStore
    books: BooksDesk
    record_log: RecordLog
    wall: Callable[[], float]
    max_piece_bytes: int
    """Of events: what fits into a message of the bus."""
    seconds: float
    """From being asked for to its end at most."""
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep


class BackgroundRun:
    def __init__(self, app: ASGIApp, parts: RunParts, record: BackgroundRecord) -> None:
        self._app = app
        self._parts = parts
        self._record = record
        self._promise = Promise(record.key, record.created_at, record.created_at + parts.seconds)
        self._leaving = asyncio.Event()
        """Cancelled or given up."""
        self._given_up = asyncio.Event()
        self._events: EventLog | None = None
        if record.streams:
            self._events = EventLog(
                parts.store.events, record.entry, parts.max_piece_bytes, lost=self._give_up
            )
        self._told: list[dict[str, Any]] = []
        """Items of the answer that its client has had from an edge that is gone."""
        self._is_handed_back = False
        self.has_begun = False

    @property
    def record(self) -> BackgroundRecord:
        return self._record

    def seen(self, record: BackgroundRecord) -> None:
        """The record as it stands in the store now."""
        if record.owner not in (self._parts.instance, ""):
            self._give_up()
        elif record.is_cancelled:
            self._leaving.set()

    def hand_back(self) -> None:
        """This process makes it no longer: whoever takes it begins anew."""
        self._is_handed_back = True
        self._give_up()

    def _give_up(self) -> None:
        self._promise.abandoned = True
        self._given_up.set()
        self._leaving.set()

    async def run(self) -> None:
        """Until its end is kept, or it was given up. Raises RequestFailed while the bus is away."""
        self.seen(self._record)
        async with self._telling():
            is_kept = self._record.starts > 1 and await self._is_kept()
            if not is_kept:
                await self._make()
        if not self._given_up.is_set():
            await self._parts.store.remove(self._record.entry)
        elif self._is_handed_back:
            await self._parts.store.change(self._record.entry, self._without_owner)

    @asynccontextmanager
    async def _telling(self) -> AsyncGenerator[None, None]:
        """Its events are written meanwhile; all of them at the end, unless it was given up."""
        if (events := self._events) is None:
            yield
            return
        if self._record.starts > 1:
            self._told = await asyncio.to_thread(told_output, await events.open())
        events.add(self._record.begun())
        writing = asyncio.create_task(events.write())
        try:
            yield
            if not self._given_up.is_set():
                events.end()
                await unless(self._given_up, asyncio.shield(writing))
        finally:
            writing.cancel()

    def _without_owner(self, present: BackgroundRecord) -> BackgroundRecord | None:
        if present.owner != self._parts.instance:
            return None
        return present.model_copy(update={"owner": "", "state": "queued"})

    async def _make(self) -> None:
        end = await self._answer()
        if end is None:
            await self._parts.record_log.stored(self._record.request_id)
            end = self._failed(ErrorBody(code="internal_error", message="The answer could not be kept."))
        while not (self._given_up.is_set() or await self._is_kept()):
            if not await self._parts.record_log.keep([end], _STORE_SECONDS):
                await unless(self._given_up, self._parts.pause(_AGAIN_SECONDS))

    async def _is_kept(self) -> bool:
        """As the books say; while they are away, nobody knows."""
        record, parts = self._record, self._parts
        while not self._given_up.is_set():
            try:
                return bool(
                    await parts.books.response(record.response_id, record.tenant.tenant_id, record.request_id)
                )
            except RequestFailed as failed:
                log.info("end of %s not confirmed yet: %s", record.response_id, failed)
                await unless(self._given_up, parts.pause(_AGAIN_SECONDS))
        return False

    async def _answer(self) -> ResponseRecord | None:
        """The end of an answer that never began. None: it has begun, and is kept on its own way."""
        if not self._leaving.is_set() and (hopeless := self._hopeless()):
            return self._failed(hopeless)
        tries = Tries()
        while not self._leaving.is_set():
            if self._parts.wall() >= self._promise.deadline:
                text = f"It was not made within {self._parts.seconds:g} s."
                return self._failed(ErrorBody(code="deadline_exceeded", message=text))
            answer = await self._ask()
            if self.has_begun:
                return None
            if answer is None:
                if self._leaving.is_set():
                    break
                return self._failed(ErrorBody(code="internal_error", message="It was not answered."))
            seconds = tries.pause_after(answer)
            if seconds is None:
                return self._failed_by(answer)
            await unless(self._leaving, self._parts.pause(seconds))
        return self._ended("cancelled", None)

    def _hopeless(self) -> ErrorBody | None:
        """Why nobody will ever make it."""
        if self._record.is_unreadable:
            text = "What was stored of it could not be read: another version of Baton may have written it."
            return ErrorBody(code="internal_error", message=text)
        if self._record.starts > MAX_STARTS:
            text = f"{MAX_STARTS} instances were lost or ended while they made it."
            return ErrorBody(code="stop_lost", message=text, stop="edge_api")
        if self._events and self._events.num_events > self._promise.num_events + 1:
            text = "The instance that made it was lost or ended, and a part of its answer had been told."
            return ErrorBody(code="stop_lost", message=text, stop="edge_api")
        return None

    async def _ask(self) -> InsideAnswer | None:
        record = self._record
        inside = Inside(record.tenant, priority=0, promise=self._promise)
        body = record.ask.encode()
        call = InsideCall(
            self._app, "/v1/responses", body, inside, record.request_id, on_event=self._on_event
        )
        return await call.run(self._leaving)

    def _on_event(self, events: bytes) -> None:
        if self._events:
            self._events.add(events)
        if not self.has_begun:
            self.has_begun = True
            spawn(self._tell_begun())

    async def _tell_begun(self) -> None:
        def change(present: BackgroundRecord) -> BackgroundRecord | None:
            if present.owner != self._parts.instance:
                return None
            return present.model_copy(update={"state": "in_progress"})

        try:
            await self._parts.store.change(self._record.entry, change)
        except RequestFailed as failed:
            log.info("%s is not told to be in progress: %s", self._record.response_id, failed)

    def _failed(self, error: ErrorBody) -> ResponseRecord:
        return self._ended("failed", error_object(error.status, error.message))

    def _failed_by(self, answer: InsideAnswer) -> ResponseRecord:
        message = orjson.loads(answer.body)["error"]["message"]
        return self._ended("failed", error_object(answer.status, message))

    def _ended(self, status: ResponseStatus, error: dict[str, Any] | None) -> ResponseRecord:
        return self._record.ended(status, error, self._told)
