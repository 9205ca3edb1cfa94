"""Hands what is kept of answers to after-answer: stored before the answer ends if possible, later if not.

Owns what could not be stored yet. A record is lost only with this process, or when MAX_WAITING others wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence

from baton_common.bus import Bus
from baton_common.errors import BusError
from baton_contracts import subjects
from baton_contracts.records import AfterRecord, ResponseRecord, UsageRecord

log = logging.getLogger(__name__)

MAX_WAITING = 1000
RETRY_SECONDS = 1.0


class RecordLog:
    def __init__(self, bus: Bus, max_bytes: int) -> None:
        self._bus = bus
        self._max_bytes = max_bytes
        self._waiting: dict[asyncio.Task[None], str] = {}
        """With the request that each belongs to."""

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    async def keep(self, records: Sequence[AfterRecord], seconds: float) -> bool:
        """True when they are stored. After `seconds` it goes on in the background and the answer is False."""
        return await self._run([self._store(record) for record in records], records[0].request_id, seconds)

    async def keep_usage(self, record: UsageRecord, seconds: float) -> bool:
        """The ledger row of what no gateway runs. As `keep`."""
        subject = subjects.after("usage", record.request_id)
        message_id = f"{record.request_id}-{record.run_id}-{record.attempt}"
        stored = self._until_stored(subject, message_id, record.encode())
        return await self._run([stored], record.request_id, seconds)

    async def _run(
        self, work: Sequence[Coroutine[None, None, None]], request_id: str, seconds: float
    ) -> bool:
        if len(self._waiting) >= MAX_WAITING:
            log.error("records of %s dropped: %d wait already", request_id, MAX_WAITING)
            for coroutine in work:
                coroutine.close()
            return False
        tasks = [asyncio.create_task(coroutine) for coroutine in work]
        for task in tasks:
            self._waiting[task] = request_id
            task.add_done_callback(self._waiting.pop)
        _, late = await asyncio.wait(tasks, timeout=seconds)
        return not late

    async def _store(self, record: AfterRecord) -> None:
        subject = subjects.after(record.kind, record.request_id)
        message_id = f"{record.request_id}-{record.run_id}-{record.kind}"
        payload = self._fitting(record)
        if payload:
            await self._until_stored(subject, message_id, payload)

    async def _until_stored(self, subject: str, message_id: str, payload: bytes) -> None:
        while True:
            try:
                await self._bus.publish_durable(subject, payload, message_id=message_id)
            except BusError as error:
                log.warning("record %s not stored yet: %s", message_id, error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    def _fitting(self, record: AfterRecord) -> bytes:
        """What is too large for the bus would never be stored: its answer is cut, and marked so."""
        payload = record.encode()
        while len(payload) > self._max_bytes:
            shorter = _shorter(record)
            if shorter is None:
                log.error("%s of %s dropped: too large", record.kind, record.request_id)
                return b""
            record, payload = shorter, shorter.encode()
        return payload

    async def stored(self, request_id: str) -> None:
        """Waits until nothing of that request waits any more."""
        if tasks := [task for task, of_request in self._waiting.items() if of_request == request_id]:
            await asyncio.wait(tasks)

    async def flush(self, seconds: float) -> None:
        """Waits for what is not stored yet, then gives it up."""
        if not self._waiting:
            return
        _, late = await asyncio.wait(set(self._waiting), timeout=seconds)
        if late:
            log.error("%d records could not be stored", len(late))
            for task in late:
                task.cancel()
            await asyncio.wait(late)


def _shorter(record: AfterRecord) -> AfterRecord | None:
    if isinstance(record, ResponseRecord):
        if record.output == "[]":
            return None
        status = "incomplete" if record.status == "completed" else record.status
        return record.model_copy(update={"output": "[]", "status": status})
    if not record.answer:
        return None
    half = record.answer[: len(record.answer) // 2]
    return record.model_copy(update={"answer": half, "cut_short": True})
