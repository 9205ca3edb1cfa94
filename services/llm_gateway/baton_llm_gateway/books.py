"""The usage records on their way into the stream that outlives us. Each is stored once, however often sent.

A store that is away is tried again in the background; the answer does not wait for it.
"""

from __future__ import annotations

import asyncio
import logging

from baton_common.bus import Bus
from baton_common.errors import BusError
from baton_contracts import subjects
from baton_contracts.records import UsageRecord

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.5
TRY_SECONDS = 5.0
MAX_TRIES = 9
"""With doubling pauses: about two minutes."""
MAX_PENDING = 10_000
"""Records kept in memory while the store is away."""
LEDGER_SECONDS = 1.0
"""How long a request waits, in the trace, for its record to be stored; storing goes on without it."""


class Books:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._pending: set[asyncio.Task[None]] = set()
        self._num_lost = 0

    @property
    def num_pending(self) -> int:
        return len(self._pending)

    def write(self, record: UsageRecord) -> asyncio.Task[None]:
        """Goes on in the background; whoever wants to know when it is stored awaits the task, shielded."""
        task = asyncio.create_task(self._store(record))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)
        return task

    async def flush(self, seconds: float) -> bool:
        """Before the process ends: waits for what is pending, also for what is given meanwhile. Whether every
        record ever given is stored."""
        try:
            async with asyncio.timeout(seconds):
                while self._pending:
                    await asyncio.wait(self._pending)
        except TimeoutError:
            log.error("%d usage records were not stored", len(self._pending))
        for task in self._pending:
            task.cancel()
        return not self._pending and not self._num_lost

    async def _store(self, record: UsageRecord) -> None:
        message_id = f"{record.request_id}-{record.run_id}-{record.attempt}"
        subject = subjects.after("usage", record.request_id)
        tries = 1 if len(self._pending) > MAX_PENDING else MAX_TRIES
        for num_in_vain in range(tries):
            if num_in_vain:
                await asyncio.sleep(FIRST_PAUSE_SECONDS * 2 ** (num_in_vain - 1))
            try:
                await self._bus.publish_durable(
                    subject, record.encode(), message_id=message_id, timeout=TRY_SECONDS
                )
            except BusError as error:
                log.warning("usage record %s not stored yet: %s", message_id, error)
            else:
                return
        self._num_lost += 1
        usage = record.usage
        log.error(
            "usage record %s LOST: tenant %s, model %s, %d tokens in, %d out, %s",
            message_id,
            record.tenant.tenant_id,
            record.model,
            usage.prompt_tokens,
            usage.completion_tokens,
            record.outcome,
        )
