"""Hands what is kept of answers to after-answer: stored before the answer ends if possible, later if not.

Owns what could not be stored yet. A record is lost only with this process, or when MAX_WAITING others wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from baton_common.bus import Bus
from baton_common.errors import BusError
from baton_contracts import subjects
from baton_contracts.records import AfterRecord

log = logging.getLogger(__name__)

MAX_WAITING = 1000
RETRY_SECONDS = 1.0


class RecordLog:
    def __init__(self, bus: Bus, max_bytes: int) -> None:
        self._bus = bus
        self._max_bytes = max_bytes
        self._waiting: set[asyncio.Task[None]] = set()

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    async def keep(self, records: Sequence[AfterRecord], seconds: float) -> bool:
        """True when they are stored. After `seconds` it goes on in the background and the answer is False."""
        if len(self._waiting) >= MAX_WAITING:
            log.error("records of %s dropped: %d wait already", records[0].request_id, MAX_WAITING)
            return False
        tasks = [asyncio.create_task(self._store(record)) for record in records]
        for task in tasks:
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)
        _, late = await asyncio.wait(tasks, timeout=seconds)
        return not late

    async def _store(self, record: AfterRecord) -> None:
        subject = subjects.after(record.kind, record.request_id)
        message_id = f"{record.request_id}-{record.run_id}-{record.kind}"
        payload = self._fitting(record)
        while True:
            try:
                await self._bus.publish_durable(subject, payload, message_id=message_id)
            except BusError as error:
                log.warning("%s of %s not stored yet: %s", record.kind, record.request_id, error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    def _fitting(self, record: AfterRecord) -> bytes:
        """What is too large for the bus would never be stored: its answer is cut, and marked so."""
        payload = record.encode()
        while len(payload) > self._max_bytes and record.answer:
            half = record.answer[: len(record.answer) // 2]
            record = record.model_copy(update={"answer": half, "cut_short": True})
            payload = record.encode()
        return payload

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
