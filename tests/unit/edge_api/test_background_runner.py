"""Who makes a response in the background: how many fit, and what comes when this process drains."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from starlette.types import Receive, Scope, Send

from baton_common.errors import RequestFailed
from baton_contracts.envelope import Tenant
from baton_edge_api.background import runner as runner_module
from baton_edge_api.background.records import BackgroundRecord
from baton_edge_api.background.run import RunParts
from baton_edge_api.background.runner import BackgroundRunner
from baton_edge_api.background.store import Change

EDGE = "edge_api-1"


def record(number: int) -> BackgroundRecord:
    return BackgroundRecord(
        key=f"{number:040x}",
        tenant=Tenant(tenant_id="acme", team="core", key_id="dev"),
        model="m",
        ask="{}",
        input="[]",
        body="{}",
        created_at=0.0,
        owner=EDGE,
    )


class Store:
    def __init__(self) -> None:
        self.entries: dict[str, BackgroundRecord] = {}
        self.away = False

    async def add(self, record: BackgroundRecord) -> None:
        await asyncio.sleep(0)
        if self.away:
            raise RequestFailed.because("bus_unavailable", "away")
        self.entries[record.entry] = record

    async def change(self, entry: str, change: Change) -> BackgroundRecord | None:
        wanted = change(self.entries[entry])
        if wanted:
            self.entries[entry] = wanted
        return wanted


async def never_answers(scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def a_runner(store: Store, *, at_most: int = 8) -> BackgroundRunner:
    nothing = cast(Any, None)
    parts = RunParts(
        EDGE, cast(Any, store), nothing, nothing, lambda: 0.0, max_piece_bytes=1000, seconds=60.0
    )
    runner = BackgroundRunner(cast(Any, None), parts, at_most, at_most)
    runner.app = never_answers
    return runner


async def test_those_that_are_being_stored_take_room_too() -> None:
    store = Store()
    runner = a_runner(store, at_most=2)
    await runner.start()
    outcomes = await asyncio.gather(*(runner.accept(record(n)) for n in range(4)), return_exceptions=True)
    assert len(store.entries) == 2
    refused = [one.error.code for one in outcomes if isinstance(one, RequestFailed)]
    assert refused == ["stop_busy", "stop_busy"]
    await runner.stop()


async def test_one_that_comes_once_the_drain_has_begun_is_for_another_edge() -> None:
    store = Store()
    runner = a_runner(store)
    await runner.start()
    accepting = asyncio.create_task(runner.accept(record(1)))
    await asyncio.sleep(0)
    await runner.stop_taking()
    await accepting
    async with asyncio.timeout(20):
        await runner.finished()
    assert [one.owner for one in store.entries.values()] == [""]


async def test_of_those_that_could_not_be_stored_only_so_many_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runner_module, "_MAX_REFUSED", 2)
    store = Store()
    store.away = True
    runner = a_runner(store)
    for number in range(3):
        with pytest.raises(RequestFailed):
            await runner.accept(record(number))
    assert list(runner._refused) == [record(1).entry, record(2).entry]  # pyright: ignore[reportPrivateUsage]
