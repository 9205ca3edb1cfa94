"""One batch from its file to its results: survey, run each line, write the files of results.

    validating ─► in_progress ─► finalizing ─► completed
        └► failed      ├► cancelling ─► cancelled       (any time: taken up again where it was left)
                       └► expired

Owns the order of these steps. What may start when is room's; a line that has a result in the store is never
run again, whoever ran it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import IO, Literal

from baton_common.errors import RequestFailed
from baton_edge_api.batches import lines
from baton_edge_api.batches.line_runner import Errand, LineRunner, refusal_of
from baton_edge_api.batches.lines import Line, Survey
from baton_edge_api.batches.records import BatchRecord, Ending, LineProblem, new_file_id
from baton_edge_api.batches.results import write_results
from baton_edge_api.batches.room import Ticket
from baton_edge_api.batches.store import Change, OfflineStore
from baton_edge_api.inside import InsideAnswer, unless

log = logging.getLogger(__name__)

_TELL_SECONDS = 0.5
"""The counts in the record are at most so old."""
_STORE_AGAIN_SECONDS = 1.0

Place = tuple[int, int, int]
_Leave = Literal["expired", "cancelled", "interrupted"]


@dataclass(frozen=True)
class RunLimits:
    lines: int
    """Of one file."""
    begun: int
    """Lines of one batch that are begun and have no result yet: those that wait to be asked again too."""
    line_bytes: int
    result_bytes: int
    """Of one line: what fits into a message of the bus."""


class BatchRun:
    def __init__(
        self,
        store: OfflineStore,
        runner: LineRunner,
        limits: RunLimits,
        record: BatchRecord,
        ended: Callable[[str], None],
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`ended` is told of each line: completed or failed."""
        self._store = store
        self._runner = runner
        self._limits = limits
        self._record = record
        self._ended = ended
        self._wall = wall
        self._why: _Leave | None = None
        self._leaving = asyncio.Event()
        self._completed = 0
        self._failed = 0

    def seen(self, record: BatchRecord) -> None:
        """The record as somebody else has changed it."""
        if record.status == "cancelling":
            self._leave("cancelled")

    def stop(self) -> None:
        """This process runs it no longer; the batch goes on elsewhere."""
        self._leave("interrupted")

    @property
    def was_stopped(self) -> bool:
        return self._why == "interrupted"

    def _leave(self, why: _Leave) -> None:
        self._why = self._why or why
        self._leaving.set()

    async def run(self) -> None:
        """Until the batch is over, or stopped. Raises RequestFailed while the store is away."""
        present = await self._store.batch(self._record.tenant.tenant_id, self._record.id)
        if present is None or not present.is_active:
            return
        self._record = present
        self.seen(present)
        if present.status == "finalizing":
            await self._finish("completed")
            return
        try:
            content = await self._store.open_file(present.input_file_id)
        except RequestFailed as failed:
            if failed.error.code != "not_found":
                raise
            text = "The input file was removed before all of it was run."
            await self._refuse([LineProblem(code="input_file_gone", message=text)])
            return
        with content:
            await self._run_file(content)

    async def _run_file(self, content: IO[bytes]) -> None:
        found = await asyncio.to_thread(
            lines.survey,
            content,
            self._record.endpoint,
            max_lines=self._limits.lines,
            max_line_bytes=self._limits.line_bytes,
        )
        if found.problems:
            await self._refuse(found.problems)
            return
        await self._begin(found)
        done = await self._read_progress()
        todo = [place for place in found.places if place[0] not in done]
        async with self._expiring(), self._telling():
            await self._run_lines(content, todo)
        if self._why == "expired":
            await self._expire(content, found.places)
        if self._why != "interrupted":
            await self._finish(self._why or "completed")

    # Steps

    async def _refuse(self, problems: list[LineProblem]) -> None:
        now = self._wall()

        def change(present: BatchRecord) -> BatchRecord:
            if present.status == "cancelling":
                return present.now("cancelled", now)
            return present.now("failed", now, problems=tuple(problems))

        await self._change(change)
        await self._store.drop_lines(self._record.id)

    async def _begin(self, found: Survey) -> None:
        now, total = self._wall(), len(found.places)

        def change(present: BatchRecord) -> BatchRecord:
            if present.status == "validating":
                return present.now("in_progress", now, total=total)
            return present.model_copy(update={"total": total})

        await self._change(change)

    async def _read_progress(self) -> set[int]:
        done: set[int] = set()
        self._completed = self._failed = 0
        async for number, result in self._store.lines(self._record.id):
            done.add(number)
            self._count(good=lines.succeeded(result))
        return done

    @asynccontextmanager
    async def _expiring(self) -> AsyncGenerator[None, None]:
        left = max(0.0, self._record.expires_at - self._wall())
        timer = asyncio.get_running_loop().call_later(left, self._leave, "expired")
        try:
            yield
        finally:
            timer.cancel()

    async def _run_lines(self, content: IO[bytes], todo: list[Place]) -> None:
        """Starts line after line as there is room, and waits for the last."""
        turns = asyncio.Semaphore(self._limits.begun)
        async with asyncio.TaskGroup() as group:
            for place in todo:
                await unless(self._leaving, turns.acquire())
                if self._leaving.is_set():
                    return
                errand = self._errand(await lines.line_at(content, place))
                if refused := refusal_of(errand.line):
                    await self._keep(errand.line, refused)
                    turns.release()
                    continue
                ticket = await self._runner.enter(errand, self._leaving)
                if ticket is None:
                    return
                running = group.create_task(self._run_line(errand, ticket))
                running.add_done_callback(lambda _: turns.release())

    def _errand(self, line: Line) -> Errand:
        record = self._record
        request_id = lines.request_id_of_line(record.id, line.number)
        return Errand(line, record.endpoint, record.tenant, request_id)

    async def _run_line(self, errand: Errand, ticket: Ticket) -> None:
        answer = await self._runner.answer(errand, ticket, self._leaving)
        if answer is not None:
            await self._keep(errand.line, answer)

    async def _keep(self, line: Line, answer: InsideAnswer) -> None:
        good, most = answer.status == 200, self._limits.result_bytes
        result = lines.answered(self._record.id, line, answer.status, answer.body)
        if len(result) > most:
            text = f"The answer takes {len(result)} bytes; {most} can be kept. Ask for less in one line."
            result, good = lines.not_answered(self._record.id, line, "answer_too_large", text), False
        if await self._until_stored(line.number, result):
            self._count(good=good)
            self._ended("completed" if good else "failed")

    async def _until_stored(self, number: int, result: bytes) -> bool:
        """An answer that was paid for is not thrown away because the bus is away for a moment."""
        while True:
            try:
                return await self._store.add_line(self._record.id, number, result)
            except RequestFailed as failed:
                log.warning("line %d of %s not stored yet: %s", number, self._record.id, failed)
                await asyncio.sleep(_STORE_AGAIN_SECONDS)

    def _count(self, *, good: bool) -> None:
        self._completed += good
        self._failed += not good

    @asynccontextmanager
    async def _telling(self) -> AsyncGenerator[None, None]:
        task = asyncio.create_task(self._tell())
        try:
            yield
        finally:
            task.cancel()

    async def _tell(self) -> None:
        told: dict[str, int] = {}
        while True:
            counts = {"completed": self._completed, "failed": self._failed}
            if counts != told:
                try:
                    await self._change(lambda present, now=counts: present.model_copy(update=now))
                    told = counts
                except RequestFailed as failed:
                    log.warning("counts of %s not stored: %s", self._record.id, failed)
            await asyncio.sleep(_TELL_SECONDS)

    # The end

    async def _expire(self, content: IO[bytes], places: list[Place]) -> None:
        text = "This request was not run before the batch's completion window was over."
        done = await self._read_progress()
        for place in places:
            if place[0] not in done:
                line = await lines.line_at(content, place)
                result = lines.not_answered(self._record.id, line, "batch_expired", text)
                await self._until_stored(line.number, result)

    async def _finish(self, ending: Ending) -> None:
        await self._name_files(ending)
        now = self._wall()
        results = await write_results(self._store, self._record, now)
        if results is None:
            return
        await self._change(lambda present: present.now(ending, now, **results.changes()))
        await self._store.drop_lines(self._record.id)
        log.info("%s is %s", self._record.id, ending)

    async def _name_files(self, ending: Ending) -> None:
        names = {"output_file_id": new_file_id(), "error_file_id": new_file_id()}
        now = self._wall()

        def change(present: BatchRecord) -> BatchRecord:
            more = {name: getattr(present, name) or made for name, made in names.items()}
            if ending == "completed" and present.status == "in_progress":
                return present.now("finalizing", now, **more)
            return present.model_copy(update=more)

        await self._change(change)

    async def _change(self, change: Change) -> None:
        """What has ended stays as it ended."""

        def unless_over(present: BatchRecord) -> BatchRecord | None:
            return change(present) if present.is_active else None

        changed = await self._store.change_batch(self._record, unless_over)
        if changed is not None:
            self._record = changed
            self.seen(changed)
