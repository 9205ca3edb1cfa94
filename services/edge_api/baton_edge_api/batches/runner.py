"""Runs the batches that are not over, while this edge has the lead.

Owns the mirror of the batches under way and a task for each. An edge without the lead only watches; where no
batch is under way, nobody leads and nothing is written.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from baton_common.errors import RequestFailed
from baton_contracts.base import MalformedMessage
from baton_edge_api.batches.lead import Lead
from baton_edge_api.batches.records import BatchRecord
from baton_edge_api.batches.run import BatchRun

log = logging.getLogger(__name__)

MAX_AT_ONCE = 32
"""Batches; the others wait for one of these to end."""
LOOK_SECONDS = 0.5
_AGAIN_SECONDS = 1.0
_END_SECONDS = 10.0

MakeRun = Callable[[BatchRecord], BatchRun]


@dataclass(eq=False)
class _Running:
    run: BatchRun
    task: asyncio.Task[None] = field(init=False)


class BatchRunner:
    """A mirror of the bucket's batches, and an inbox of the node: it drains."""

    def __init__(self, lead: Lead, make_run: MakeRun) -> None:
        self._lead = lead
        self._make_run = make_run
        self._active: dict[str, BatchRecord] = {}
        self._runs: dict[str, _Running] = {}
        self._news = asyncio.Event()
        self._taking = False
        self._idle = asyncio.Event()
        """Set unless this process leads."""
        self._idle.set()

    # The mirror

    def put(self, entry: str, value: bytes, /) -> None:
        try:
            record = BatchRecord.decode(value)
        except MalformedMessage as error:
            log.error("%s can't be read: %s", entry, error)
            return
        if not record.is_active:
            self.remove(entry)
            return
        self._active[entry] = record
        if running := self._runs.get(entry):
            running.run.seen(record)
        self._news.set()

    def remove(self, entry: str, /) -> None:
        self._active.pop(entry, None)
        self._news.set()

    def replace(self, entries: Mapping[str, bytes], /) -> None:
        for entry in self._active.keys() - entries.keys():
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
        """Lines under way leave at once: another edge runs them again."""
        self._taking = False
        self._news.set()
        for running in self._runs.values():
            running.run.stop()

    async def finished(self) -> None:
        await self._idle.wait()

    # The work

    async def run(self) -> None:
        """For ever."""
        while True:
            self._news.clear()
            if not (self._taking and self._active):
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
            while self._taking and (self._active or self._runs) and not keeping.done():
                self._news.clear()
                self._begin_runs()
                news = asyncio.create_task(self._news.wait())
                await asyncio.wait((keeping, news), return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
        finally:
            await self._end_runs()
            keeping.cancel()
            await self._lead.give_up()
            self._idle.set()

    def _begin_runs(self) -> None:
        """The oldest first, of the tenant that has the fewest under way: nobody's many keep others out."""
        waiting = sorted(
            (entry for entry in self._active if entry not in self._runs),
            key=lambda entry: self._active[entry].created_at,
        )
        under_way = Counter(_tenant_of(entry) for entry in self._runs)
        while waiting and len(self._runs) < MAX_AT_ONCE:
            entry = min(waiting, key=lambda entry: under_way[_tenant_of(entry)])
            waiting.remove(entry)
            under_way[_tenant_of(entry)] += 1
            running = _Running(self._make_run(self._active[entry]))
            running.task = asyncio.create_task(self._run_one(entry, running.run))
            self._runs[entry] = running

    async def _run_one(self, entry: str, run: BatchRun) -> None:
        try:
            await run.run()
            if not run.was_stopped:
                self._active.pop(entry, None)
        except RequestFailed as failed:
            log.warning("%s waits: %s", entry, failed)
            await asyncio.sleep(_AGAIN_SECONDS)
        except Exception:  # a fault of ours in one batch: the others go on
            log.exception("%s failed; it is run again", entry)
            await asyncio.sleep(_END_SECONDS)
        finally:
            self._runs.pop(entry, None)
            self._news.set()

    async def _end_runs(self) -> None:
        tasks = [running.task for running in self._runs.values()]
        for running in self._runs.values():
            running.run.stop()
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=_END_SECONDS)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)


def _tenant_of(entry: str) -> str:
    """`batch.TENANT.ID`"""
    return entry.split(".")[1]
