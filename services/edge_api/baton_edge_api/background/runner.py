"""The responses that this edge makes in the background, and those whose edge is gone.

Owns which of them this edge makes. Of one whose edge is lost every edge tries to take it; the bucket decides
who has it.
"""

from __future__ import annotations

import asyncio
import logging

from starlette.types import ASGIApp

from baton_common.errors import RequestFailed
from baton_common.node import Node
from baton_contracts.errors import ErrorBody
from baton_contracts.heartbeats import LEASE_LOST_AFTER_SECONDS
from baton_edge_api.background.records import BackgroundRecord, tenant_token
from baton_edge_api.background.run import BackgroundRun, RunParts
from baton_edge_api.entry_runs import EntryRuns
from baton_edge_api.record_mirror import RecordMirror

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
_UNHEARD_SECONDS = LEASE_LOST_AFTER_SECONDS + 1.0
"""An edge that was not heard for so long since we read its name is gone."""
_END_SECONDS = 5.0
_MAX_REFUSED = 1024
"""Beyond it the oldest is forgotten: its entry, if it is there after all, is made like any other."""


class BackgroundRunner:
    """An inbox of the node: it drains."""

    app: ASGIApp
    """Asked for the answers; set before the first one is."""

    def __init__(self, node: Node, parts: RunParts, max_runs: int, max_tenant_runs: int) -> None:
        self._node = node
        self._parts = parts
        self._max_runs = max_runs
        self._max_tenant_runs = max_tenant_runs
        self.mirror = RecordMirror(BackgroundRecord.read, self._seen)
        """Of the bucket."""
        self._runs: EntryRuns[BackgroundRun] = EntryRuns(lambda _entry, _run: None)
        self._owned_since: dict[str, tuple[str, float]] = {}
        """The owner of an entry, and when we first saw it with that owner."""
        self._accepting: set[str] = set()
        self._refused: dict[str, None] = {}
        """Entries whose client was told that it did not work: should they be there all the same, they go."""
        self._news = self._runs.changed
        self._taking = False

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
        return any(run.record.request_id == request_id for run in self._runs.runs)

    def _refuse(self, entry: str) -> None:
        self._refused[entry] = None
        if len(self._refused) > _MAX_REFUSED:
            del self._refused[next(iter(self._refused))]

    def _check_room(self, record: BackgroundRecord) -> None:
        if self.makes(record.request_id):
            text = f"Request {record.request_id} is already under way. Use a new x-request-id."
            raise RequestFailed.because("conflict", text, param="x-request-id")
        tenant = tenant_token(record.entry)
        entries = self._runs.entries | self._accepting
        num_own = sum(tenant_token(entry) == tenant for entry in entries)
        if num_own >= self._max_tenant_runs or len(entries) >= self._max_runs:
            text = (
                f"{len(entries)} responses are being made in the background here, {num_own} of them "
                "yours, and no more fit. Try again shortly."
            )
            error = ErrorBody(code="stop_busy", message=text, stop="edge_api", retry_after_seconds=5)
            raise RequestFailed(error)

    # What the mirror tells

    def _seen(self, entry: str, record: BackgroundRecord) -> None:
        since = self._owned_since.get(entry)
        if since is None or since[0] != record.owner:
            self._owned_since[entry] = (record.owner, self._node.clock.monotonic())
        if running := self._runs.get(entry):
            running.seen(record)
        self._news.set()

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
        self._runs.hurry()
        for run in self._runs.runs:
            if not run.has_begun:
                run.hand_back()

    async def finished(self) -> None:
        await self._runs.idle.wait()

    async def stop(self) -> None:
        """What outlasted the drain is for another edge too."""
        for run in self._runs.runs:
            run.hand_back()
        await self._runs.end(_END_SECONDS)

    # The work

    async def run(self) -> None:
        """For ever: takes what nobody makes."""
        while True:
            self._news.clear()
            if not (self._taking and self._not_made_here()):
                await self._news.wait()
                continue
            for entry in self._not_made_here():
                try:
                    await self._look_after(entry)
                except RequestFailed as failed:
                    log.warning("%s waits: %s", entry, failed)
            await asyncio.sleep(LOOK_SECONDS)

    def _not_made_here(self) -> set[str]:
        known = self.mirror.records.keys()
        for gone in self._owned_since.keys() - known:
            del self._owned_since[gone]
        return known - self._runs.entries - self._accepting

    async def _look_after(self, entry: str) -> None:
        record = self.mirror.records.get(entry)
        if record is None or not self._taking:
            return
        if entry in self._refused:
            await self._parts.store.remove(entry)
            self._refused.pop(entry, None)
        elif self._is_orphan(entry) and len(self._runs) < self._max_runs:
            await self._take(record)

    def _is_orphan(self, entry: str) -> bool:
        owner, since = self._owned_since[entry]
        if owner in ("", self._node.instance):
            return True
        unheard = self._node.clock.monotonic() - since
        return self._node.bus.connected and unheard >= _UNHEARD_SECONDS and not self._node.leases.lives(owner)

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
        elif self.mirror.records.get(seen.entry) is seen:
            self.mirror.remove(seen.entry)  # gone: whatever stands there is told by the watch

    def _begin(self, record: BackgroundRecord) -> None:
        run = BackgroundRun(self.app, self._parts, record)
        if not self._taking:  # it was on its way here when the drain began
            run.hand_back()
        self._runs.begin(record.entry, run)
