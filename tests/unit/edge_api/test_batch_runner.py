"""Who has lost the lead and gets it again goes on with the batches that are not over."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from baton_contracts.envelope import Tenant
from baton_edge_api.batches.records import BatchRecord
from baton_edge_api.batches.runner import MAX_AT_ONCE, BatchRunner
from tests.support.relay import eventually

RECORD = BatchRecord(
    id="batch_1",
    tenant=Tenant(tenant_id="acme", key_id="k"),
    endpoint="/v1/chat/completions",
    input_file_id="file-1",
    output_seconds=3600,
    created_at=1,
    expires_at=2,
)


class ShortLead:
    """Taken whenever it is wanted, kept until the test says that it is lost."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()

    async def try_take(self) -> bool:
        self.lost.clear()
        return True

    async def keep(self) -> None:
        await self.lost.wait()

    async def give_up(self) -> None:
        return None


class LongRun:
    def __init__(self) -> None:
        self.was_stopped = False
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        self.was_stopped = True
        self._stopped.set()

    def seen(self, record: BatchRecord) -> None:
        return None

    async def run(self) -> None:
        await self._stopped.wait()


async def test_a_batch_that_was_stopped_is_run_again_without_news_of_it() -> None:
    lead, runs = ShortLead(), list[LongRun]()

    def make(_: BatchRecord) -> Any:
        runs.append(LongRun())
        return runs[-1]

    runner = BatchRunner(cast(Any, lead), make)
    runner.mirror.put("batch.acme.batch_1", RECORD.encode())
    await runner.start()
    running = asyncio.create_task(runner.run())
    try:
        await eventually(lambda: len(runs) == 1)
        lead.lost.set()
        await eventually(lambda: len(runs) == 2)
        assert [run.was_stopped for run in runs] == [True, False]
    finally:
        running.cancel()


async def test_one_tenants_many_batches_do_not_keep_another_out() -> None:
    made: list[BatchRecord] = []

    def make(record: BatchRecord) -> Any:
        made.append(record)
        return LongRun()

    runner = BatchRunner(cast(Any, ShortLead()), make)
    for number in range(MAX_AT_ONCE):
        runner.mirror.put(f"batch.acme.b{number}", RECORD.encode())
    late = RECORD.model_copy(update={"tenant": Tenant(tenant_id="rival", key_id="r"), "created_at": 9})
    runner.mirror.put("batch.rival.b1", late.encode())
    await runner.start()
    running = asyncio.create_task(runner.run())
    try:
        await eventually(lambda: len(made) == MAX_AT_ONCE)
        assert late in made[:2]
    finally:
        running.cancel()
