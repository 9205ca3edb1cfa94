"""Runs the batches that are not over, while this edge has the lead.

Owns which of them run at once. An edge without the lead only watches; where no batch is under way, nobody
leads and nothing is written.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from baton_common.errors import RequestFailed
from baton_edge_api.batches.lead import Lead
from baton_edge_api.batches.records import BatchRecord
from baton_edge_api.batches.run import BatchRun
from baton_edge_api.entry_runs import EntryRuns
from baton_edge_api.record_mirror import RecordMirror

log = logging.getLogger(__name__)

MAX_AT_ONCE = 32
"""Batches; the others wait for one of these to end."""
LOOK_SECONDS = 0.5
_END_SECONDS = 10.0

MakeRun = Callable[[BatchRecord], BatchRun]


class BatchRunner:
    """An inbox of the node: it drains."""

    def __init__(self, lead: Lead, make_run: MakeRun) -> None:
        self._lead = lead
        self._make_run = make_run
        self.mirror = RecordMirror(_active, self._seen)
        """Of the bucket's batches that are not over."""
        self._runs: EntryRuns[BatchRun] = EntryRuns(self._ended)
        self._news = self._runs.changed
        self._taking = False
        self._idle = asyncio.Event()
        """Set unless this process leads."""
        self._idle.set()

    # What the mirror tells

    def _seen(self, entry: str, record: BatchRecord) -> None:
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
        """Lines under way leave at once: another edge runs them again."""
        self._taking = False
        self._news.set()
        self._runs.hurry()
        for run in self._runs.runs:
            run.stop()

    async def finished(self) -> None:
        await self._idle.wait()

    # The work

    async def run(self) -> None:
        """For ever."""
        while True:
            self._news.clear()
            if not (self._taking and self.mirror.records):
                await self._news.wait()
            elif await self._may_lead():
                await self._serve()
            else:
                await asyncio.sleep(LOOK_SECONDS)

    async def _may_lead(self) -> bool:
        try:
            return await self._lead.try_take()
        except RequestFailed as failed:
            log.warning("batches wait: %s", failed)
            return False

    async def _serve(self) -> None:
        keeping = asyncio.create_task(self._lead.keep())
        self._idle.clear()
        try:
            while self._taking and (self.mirror.records or self._runs) and not keeping.done():
                self._news.clear()
                self._begin_runs()
                news = asyncio.create_task(self._news.wait())
                await asyncio.wait((keeping, news), return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
        finally:
            for run in self._runs.runs:
                run.stop()
            await self._runs.end(_END_SECONDS)
            keeping.cancel()
            await self._lead.give_up()
            self._idle.set()

    def _begin_runs(self) -> None:
        """The oldest first, of the tenant that has the fewest under way: nobody's many keep others out."""
        active = self.mirror.records
        waiting = sorted(active.keys() - self._runs.entries, key=lambda entry: active[entry].created_at)
        under_way = Counter(_tenant_of(entry) for entry in self._runs.entries)
        while waiting and len(self._runs) < MAX_AT_ONCE:
            entry = min(waiting, key=lambda entry: under_way[_tenant_of(entry)])
            waiting.remove(entry)
            under_way[_tenant_of(entry)] += 1
            self._runs.begin(entry, self._make_run(active[entry]))

    def _ended(self, entry: str, run: BatchRun) -> None:
        """It is over, which the watch may not have told yet."""
        if not run.was_stopped:
            self.mirror.remove(entry)


def _active(_: str, value: bytes) -> BatchRecord | None:
    record = BatchRecord.decode(value)
    return record if record.is_active else None


def _tenant_of(entry: str) -> str:
    """`batch.TENANT.ID`"""
    return entry.split(".")[1]
