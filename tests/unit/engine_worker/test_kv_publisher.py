"""KV events on the bus: numbered, told again when asked, bounded whatever the bus does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from baton_common.errors import BusUnavailable
from baton_common.memory_bus import MemoryBus
from baton_common.node import Node
from baton_contracts.kv_events import KvChange
from baton_engine_worker import kv_publisher
from baton_engine_worker.__main__ import kv_asks
from baton_engine_worker.kv_publisher import KvPublisher
from tests.support.fake_engine import FakeEngine
from tests.support.kv_mirror import KvMirror
from tests.support.scripted_answer import Script

A, B, C, D = (bytes([number]) * 32 for number in (1, 2, 3, 4))


class LossyBus(MemoryBus):
    """Says when it could not publish."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = asyncio.Event()

    async def publish(self, subject: str, payload: bytes, *, reply: str = "", within: float = 0.0) -> None:
        try:
            await super().publish(subject, payload, reply=reply)
        except BusUnavailable:
            self.lost.set()
            raise


@dataclass
class Bench:
    bus: LossyBus
    node: Node
    engine: FakeEngine
    publisher: KvPublisher
    mirror: KvMirror


@asynccontextmanager
async def telling(engine: FakeEngine | None = None) -> AsyncGenerator[Bench, None]:
    """The publisher runs, and has told what the engine's cache holds."""
    bus, engine = LossyBus(), engine or FakeEngine(autoplay=False)
    node = Node(bus, "engine_worker")
    await engine.start()
    publisher, mirror = KvPublisher(node, engine), KvMirror(bus, node.instance)
    asks = kv_asks(node, publisher)
    await mirror.listen()
    await asks.start()
    running = asyncio.create_task(publisher.run())
    try:
        await mirror.until(
            lambda mirror: len(mirror.hashes) == len(engine.findable) and mirror.messages != []
        )
        yield Bench(bus, node, engine, publisher, mirror)
    finally:
        running.cancel()
        await asks.stop_taking()
        await engine.close()


async def test_the_changes_of_a_step_are_one_message_with_the_next_number() -> None:
    async with telling() as bench:
        bench.engine.store(A, B)
        await bench.mirror.until(lambda mirror: len(mirror.messages) == 2)
        bench.engine.evict(B)
        await bench.mirror.until(lambda mirror: len(mirror.messages) == 3)
        first, second, third = bench.mirror.messages

    assert [message.seq for message in (first, second, third)] == [0, 1, 2]
    assert {message.epoch for message in (first, second, third)} == {bench.engine.kv_log.epoch}
    assert {message.replica for message in (first, second, third)} == {bench.node.instance}
    assert first.changes == (KvChange(kind="cleared"),)
    assert second.changes == (
        KvChange(kind="stored", parent_hash=b"root".hex(), block_hashes=(A.hex(), B.hex())),
    )
    assert third.changes == (KvChange(kind="removed", block_hashes=(B.hex(),)),)
    assert (bench.publisher.epoch, bench.publisher.next_seq) == (first.epoch, 3)


async def test_a_late_listener_asks_and_is_told_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_publisher, "TELL_ALL_SECONDS", 0)
    async with telling() as bench:
        bench.engine.store(A, B)
        await bench.mirror.until(lambda mirror: len(mirror.hashes) == 2)
        late = KvMirror(bench.bus, bench.node.instance)
        await late.listen()
        reply = await late.ask()
        await late.until(lambda mirror: len(mirror.hashes) == 2)
        bench.engine.store(C, parent=B)
        await late.until(lambda mirror: len(mirror.hashes) == 3)

    assert (reply.epoch, reply.next_seq, reply.error) == (bench.engine.kv_log.epoch, 2, None)
    assert late.messages[0].seq == 2
    assert late.messages[0].changes[0].kind == "cleared"
    assert late.num_gaps == 1  # where it came in; none after that
    assert bench.mirror.hashes == late.hashes
    assert bench.mirror.num_gaps == 1


async def test_many_who_ask_at_once_are_told_once() -> None:
    async with telling() as bench:
        for _ in range(20):
            await bench.mirror.ask()
        bench.engine.store(A)
        await bench.mirror.until(lambda mirror: len(mirror.hashes) == 1)
        told = [message.changes[0].kind for message in bench.mirror.messages]
    assert told == ["cleared", "stored"]  # the next telling comes when the second is over


async def test_an_engine_that_is_not_ready_says_so() -> None:
    async with telling() as bench:
        bench.engine.crash()
        reply = await bench.mirror.ask()
    assert reply.error is not None
    assert (reply.error.code, reply.error.stop) == ("no_ready_replica", "engine_worker")
    assert "failed" in reply.error.message


async def test_a_long_run_is_cut_and_each_part_names_what_comes_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kv_publisher, "MAX_HASHES_A_MESSAGE", 3)
    engine = FakeEngine(autoplay=False)
    engine.store(*(bytes([number]) * 32 for number in range(7)))
    async with telling(engine) as bench:
        messages = bench.mirror.messages
    runs = [change for message in messages for change in message.changes if change.kind == "stored"]
    assert [len(run.block_hashes) for run in runs] == [3, 3, 1]
    assert [run.parent_hash for run in runs] == [b"root".hex(), "02" * 32, "05" * 32]
    assert [message.seq for message in messages] == [0, 1, 2]
    assert bench.mirror.num_gaps == 1


async def test_while_the_bus_is_away_nothing_piles_up_and_then_all_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kv_publisher, "TELL_ALL_SECONDS", 0)
    async with telling() as bench:
        bench.bus.online = False
        bench.engine.store(A)
        await bench.bus.lost.wait()
        bench.engine.store(B, parent=A)
        bench.bus.online = True
        await bench.mirror.until(lambda mirror: len(mirror.hashes) == 2)
    assert bench.mirror.num_gaps == 2  # where it began, and the loss


async def test_more_than_may_wait_is_dropped_and_told_anew(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kv_publisher, "TELL_ALL_SECONDS", 0)
    async with telling(FakeEngine(Script(kv_blocks=2), autoplay=False)) as bench:
        for _ in range(5):  # 10 hashes before the loop turns: 2 blocks may have 8 waiting
            bench.engine.store(A)
            bench.engine.evict(A)
        bench.engine.store(D)
        await bench.mirror.until(lambda mirror: mirror.hashes == {D.hex()})
    assert "9 KV events wait to be sent" in caplog.text
    assert bench.mirror.num_gaps == 1  # no number is lost: what is told anew begins with `cleared`
    assert [message.changes[0].kind for message in bench.mirror.messages] == ["cleared", "cleared"]
