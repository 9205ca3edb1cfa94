"""A node's end: what it ran in the background has ended before the bus may close."""

from __future__ import annotations

import asyncio

import pytest

from baton_common.errors import BusUnavailable
from baton_common.memory_bus import MemoryBus
from baton_common.node import Node


async def test_what_is_supervised_has_ended_when_the_node_has_stopped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bus = MemoryBus()
    node = Node(bus, "edge_api")
    running, bus_is_closed, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def watch() -> None:
        """As a library does: to be cancelled takes it some turns, and it ends otherwise on a closed bus."""
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(20):
                await asyncio.sleep(0)
            if bus_is_closed.is_set():
                raise ConnectionError
            ended.set()

    await node.start()
    node.supervise("a watch", watch)
    await running.wait()
    await node.stop()
    bus_is_closed.set()
    assert ended.is_set()
    assert "failed" not in caplog.text


async def test_what_fails_is_started_again_and_a_bus_that_is_away_is_no_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = Node(MemoryBus(), "edge_api")
    failures: list[Exception] = [BusUnavailable("use.>"), ZeroDivisionError()]
    runs = asyncio.Event()

    async def run() -> None:
        if failures:
            raise failures.pop(0)
        runs.set()

    await node.start()
    node.supervise("a watch", run)
    async with asyncio.timeout(20):
        await runs.wait()
    away, fault = [record for record in caplog.records if "a watch" in record.message]
    assert (away.levelname, away.exc_info) == ("WARNING", None)
    assert away.message == "a watch: use.>: not connected to the bus; starting it again in 0.1 s"
    assert fault.levelname == "ERROR"
    assert "ZeroDivisionError" in caplog.text
    await node.stop()


async def test_what_does_not_end_holds_the_node_up_for_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baton_common.node.END_SECONDS", 0.01)
    node = Node(MemoryBus(), "edge_api")
    running, let_go = asyncio.Event(), asyncio.Event()

    async def stubborn() -> None:
        running.set()
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    await node.start()
    node.supervise("a stubborn one", stubborn)
    await running.wait()
    await node.stop()
    assert node.state == "gone"
    let_go.set()
