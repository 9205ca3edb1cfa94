"""The responses that this edge makes in the background, and those whose edge is gone.

Owns a task for each and the mirror of the bucket. Of one whose edge is lost every edge tries to take it; the
bucket decides who has it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.types import ASGIApp

from baton_common.errors import RequestFailed
from baton_common.node import Node
from baton_contracts.base import MalformedMessage
from baton_contracts.errors import ErrorBody
from baton_contracts.heartbeats import LEASE_LOST_AFTER_SECONDS
from baton_edge_api.background.records import BackgroundRecord, tenant_token
from baton_edge_api.background.run import BackgroundRun, RunParts

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
_UNHEARD_SECONDS = LEASE_LOST_AFTER_SECONDS + 1.0
"""An edge that was not heard for so long since we read its name is gone."""
_END_SECONDS = 5.0
_MAX_REFUSED = 1024
"""Beyond it the oldest is forgotten: its entry, if it is there after all, is made like any other."""


@dataclass
class _Known:
    record: BackgroundRecord
    since: float
    """When we first saw it with this owner."""


class BackgroundRunner:
    """A mirror of the bucket, and an inbox of the node: it drains."""

    app: ASGIApp
    """Asked for the answers; set before the first one is."""

    def __init__(self, node: Node, parts: RunParts, max_runs: int, max_tenant_runs: int) -> None:
        self._node = node
        self._parts = parts
        self._max_runs = max_runs
        self._max_tenant_runs = max_tenant_runs
        self._known: dict[str, _Known] = {}
        self._runs: dict[str, tuple[BackgroundRun, asyncio.Task[None]]] = {}
        self._accepting: set[str] = set()
        self._refused: dict[str, None] = {}
        """Entries whose client was told that it did not work: should they be there all the same, they go."""
        self._leaving: dict[str, list[asyncio.Event]] = {}
        """Of entries whose end is waited for."""
        self._news = asyncio.Event()
        self._taking = False
        self._idle = asyncio.Event()
        self._idle.set()

    # From a client

    async def accept(self, record: BackgroundRecord) -> None:
        """Stored when this returns, and begun with the next turn of the loop. Raises RequestFailed."""
        self._check_room(record)
        entry = record.entry
        self._accepting.add(entry)
        try:
            await self._parts.store.add(record)
        except BaseException:
            self._refuse(entry)
            raise
        finally:
            self._accepting.discard(entry)
        self._begin(record)

    def makes(self, request_id: str) -> bool:
        """The answer to that request; it may have no seat now, while it waits for room."""
        return any(run.record.request_id == request_id for run, _ in self._runs.values())

    def _refuse(self, entry: str) -> None:
        self._refused[entry] = None
        if len(self._refused) > _MAX_REFUSED:
            del self._refused[next(iter(self._refused))]

    def _check_room(self, record: BackgroundRecord) -> None:
        if self.makes(record.request_id):
            text = f"Request {record.request_id} is already under way. Use a new x-request-id."
            raise RequestFailed.because("conflict", text, param="x-request-id")
        tenant = tenant_token(record.entry)
        entries = self._runs.keys() | self._accepting
        num_own = sum(tenant_token(entry) == tenant for entry in entries)
        if num_own >= self._max_tenant_runs or len(entries) >= self._max_runs:
            text = (
                f"{len(entries)} responses are being made in the background here, {num_own} of them "
                "yours, and no more fit. Try again shortly."
            )
            error = ErrorBody(code="stop_busy", message=text, stop="edge_api", retry_after_seconds=5)
            raise RequestFailed(error)

    @contextmanager
    def leaving(self, entry: str) -> Generator[asyncio.Event, None, None]:
        """Set when the entry, which is in the bucket now, goes."""
        leaving = asyncio.Event()
        self._leaving.setdefault(entry, []).append(leaving)
        try:
            yield leaving
        finally:
            if not leaving.is_set():
                self._leaving[entry].remove(leaving)
                if not self._leaving[entry]:
                    del self._leaving[entry]

    # The mirror

    def put(self, entry: str, value: bytes, /) -> None:
        try:
            record = BackgroundRecord.decode(value)
        except MalformedMessage as error:
            log.error("%s can't be read: %s", entry, error)
            return
        known = self._known.get(entry)
        if known is None or known.record.owner != record.owner:
            self._known[entry] = _Known(record, self._node.clock.monotonic())
        else:
            known.record = record
        if running := self._runs.get(entry):
            running[0].seen(record)
        self._news.set()

    def remove(self, entry: str, /) -> None:
        self._known.pop(entry, None)
        for leaving in self._leaving.pop(entry, ()):
            leaving.set()

    def replace(self, entries: Mapping[str, bytes], /) -> None:
        for entry in (self._known.keys() | self._leaving.keys()) - entries.keys():
            self.remove(entry)
        for entry, value in entries.items():
            self.put(entry, value)

    # The inbox

    @property
    def num_held(self) -> int:
        return len(self._runs)

    async def start(self) -> None:
        self._taking = True
        self._news.set()

    async def stop_taking(self) -> None:
        """What has begun goes on; the rest is for another edge."""
        self._taking = False
        for run, _ in self._runs.values():
            if not run.has_begun:
                run.hand_back()

    async def finished(self) -> None:
        await self._idle.wait()

    async def stop(self) -> None:
        """What outlasted the drain is for another edge too."""
        tasks = [task for _, task in self._runs.values()]
        for run, _ in self._runs.values():
            run.hand_back()
        if tasks:
            await asyncio.wait(tasks, timeout=_END_SECONDS)

    # The work

    async def run(self) -> None:
        """For ever: takes what nobody makes."""
        while True:
            self._news.clear()
            if not (self._taking and self._known.keys() - self._runs.keys()):
                await self._news.wait()
                continue
            for entry in list(self._known.keys() - self._runs.keys() - self._accepting):
                try:
                    await self._look_after(entry)
                except RequestFailed as failed:
                    log.warning("%s waits: %s", entry, failed)
            await asyncio.sleep(LOOK_SECONDS)

    async def _look_after(self, entry: str) -> None:
        known = self._known.get(entry)
        if known is None or not self._taking:
            return
        if entry in self._refused:
            await self._parts.store.remove(entry)
            self._refused.pop(entry, None)
        elif self._is_orphan(known) and len(self._runs) < self._max_runs:
            await self._take(known.record)

    def _is_orphan(self, known: _Known) -> bool:
        owner = known.record.owner
        if owner in ("", self._node.instance):
            return True
        since = self._node.clock.monotonic() - known.since
        return self._node.bus.connected and since >= _UNHEARD_SECONDS and not self._node.leases.lives(owner)

    async def _take(self, seen: BackgroundRecord) -> None:
        def change(present: BackgroundRecord) -> BackgroundRecord | None:
            return present.taken_by(self._node.instance) if present.owner == seen.owner else None

        self._accepting.add(seen.entry)
        try:
            taken = await self._parts.store.change(seen.entry, change)
        finally:
            self._accepting.discard(seen.entry)
        if taken:
            log.info("makes %s now, after %s", taken.response_id, seen.owner or "nobody")
            self._begin(taken)
        elif (known := self._known.get(seen.entry)) and known.record is seen:
            self._known.pop(seen.entry)  # gone: whatever stands there is told by the watch

    def _begin(self, record: BackgroundRecord) -> None:
        run = BackgroundRun(self.app, self._parts, record)
        if not self._taking:  # it was on its way here when the drain began
            run.hand_back()
        self._idle.clear()
        task = asyncio.create_task(self._run_one(record.entry, run))
        self._runs[record.entry] = (run, task)

    async def _run_one(self, entry: str, run: BackgroundRun) -> None:
        try:
            await run.run()
        except RequestFailed as failed:
            log.warning("%s waits: %s", entry, failed)
        except Exception:
            log.exception("%s failed; it is made anew", entry)  # its entry stands, and counts its starts
        finally:
            del self._runs[entry]
            self._news.set()
            if not self._runs:
                self._idle.set()
