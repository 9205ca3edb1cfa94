"""Who is alive: silence, farewell, and our own absence from the bus."""

from __future__ import annotations

import asyncio

import pytest

from baton_common.leases import LeaseBoard, beat
from baton_common.memory_bus import MemoryBus
from baton_contracts import subjects
from baton_contracts.heartbeats import Lease, State
from tests.support.relay import HandClock, eventually, running_node

PEER = "engine_worker-00000001"


async def board_with(clock: HandClock) -> tuple[MemoryBus, LeaseBoard]:
    bus = MemoryBus()
    board = LeaseBoard(bus, clock.clock, lost_after=3)
    await board.start()
    return bus, board


async def say(bus: MemoryBus, board: LeaseBoard, state: State = "ready") -> None:
    lease = Lease(service="engine_worker", instance=PEER, state=state)
    await bus.publish(subjects.lease(PEER), lease.encode())
    await eventually(lambda: (PEER in board.ready_instances("engine_worker")) == (state == "ready"))


async def test_silence_is_death_and_is_told_once() -> None:
    clock, lost = HandClock(), list[str]()
    bus, board = await board_with(clock)
    await say(bus, board)
    board.watch(PEER, lost.append)
    clock.move(2.9)
    board.check()
    assert lost == []
    clock.move(0.2)
    board.check()
    board.check()
    assert lost == [PEER]
    assert board.ready_instances("engine_worker") == []


async def test_a_farewell_is_heard_at_once() -> None:
    lost = list[str]()
    bus, board = await board_with(HandClock())
    await say(bus, board)
    board.watch(PEER, lost.append)
    await say(bus, board, "gone")
    assert lost == [PEER]


async def test_an_instance_never_heard_of_has_its_time_too() -> None:
    clock, lost = HandClock(), list[str]()
    _, board = await board_with(clock)
    board.watch("never-seen", lost.append)
    clock.move(3.1)
    board.check()
    assert lost == ["never-seen"]


async def test_nobody_is_dead_while_we_are_cut_off() -> None:
    clock, lost = HandClock(), list[str]()
    bus, board = await board_with(clock)
    await say(bus, board)
    board.watch(PEER, lost.append)
    bus.online = False
    clock.move(60)
    board.check()
    bus.online = True
    board.check()
    assert lost == []


async def test_nobody_is_dead_while_the_bus_stands_still() -> None:
    """Connected, and what we say ourselves does not come back; once it does, the dead have their time."""
    clock, lost = HandClock(), list[str]()
    bus, own = MemoryBus(), "edge_api-00000001"
    board = LeaseBoard(bus, clock.clock, own, lost_after=3)
    await board.start()
    await say(bus, board)
    board.watch(PEER, lost.append)
    heard: list[str] = []
    await bus.subscribe(subjects.lease(own), lambda message: heard.append(message.subject))

    async def hear_ourselves() -> None:
        before = len(heard)
        lease = Lease(service="edge_api", instance=own, state="ready")
        await bus.publish(subjects.lease(own), lease.encode())
        await eventually(lambda: len(heard) > before)

    await hear_ourselves()
    for _ in range(10):
        clock.move(1.0)
        board.check()
    assert lost == []
    for seconds, expected in ((2.9, []), (0.2, [PEER])):
        clock.move(seconds)
        await hear_ourselves()
        board.check()
        assert lost == expected


async def test_nobody_is_dead_because_we_stood_still(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, lost = HandClock(), list[str]()
    bus, board = await board_with(clock)
    await say(bus, board)
    board.watch(PEER, lost.append)
    slept: list[float] = []

    async def sleep_too_long(seconds: float) -> None:
        slept.append(seconds)
        clock.move(4.0 if len(slept) == 1 else 0.5)
        if len(slept) > 9 or lost:
            raise asyncio.CancelledError

    monkeypatch.setattr("baton_common.leases.asyncio.sleep", sleep_too_long)
    with pytest.raises(asyncio.CancelledError):
        await beat(
            bus, lambda: Lease(service="edge_api", instance="edge_api-1", state="ready"), board, clock.clock
        )
    assert lost == [PEER]
    assert len(slept) == 9  # the long one, seven short ones (3.5 s), and the one that ends it


async def test_a_watch_can_be_ended() -> None:
    clock, lost = HandClock(), list[str]()
    _, board = await board_with(clock)
    board.watch(PEER, lost.append)()
    clock.move(9)
    board.check()
    assert lost == []


async def test_who_ends_its_watch_as_it_is_told_hides_nobody_else() -> None:
    lost = list[str]()
    bus, board = await board_with(HandClock())
    await say(bus, board)
    end_own = board.watch(PEER, lambda _: end_own())
    board.watch(PEER, lost.append)
    await say(bus, board, "gone")
    assert lost == [PEER]


async def test_a_draining_instance_is_not_ready() -> None:
    bus, board = await board_with(HandClock())
    await say(bus, board)
    await say(bus, board, "draining")
    assert board.ready_instances("engine_worker") == []


async def test_who_reads_batches_has_said_so() -> None:
    bus, board = await board_with(HandClock())
    await say(bus, board)
    assert not board.read_batches([PEER])
    lease = Lease(service="engine_worker", instance=PEER, state="ready", reads_frame_batches=True)
    await bus.publish(subjects.lease(PEER), lease.encode())
    await eventually(lambda: board.read_batches([PEER]))
    assert not board.read_batches([PEER, "never-seen"])


async def test_who_left_with_closed_books_is_told_apart_from_who_was_lost() -> None:
    lost, closed = list[str](), list[str]()
    bus, board = await board_with(HandClock())
    await say(bus, board)
    board.watch(PEER, lost.append, closed.append)
    board.watch(PEER, lost.append)
    lease = Lease(service="engine_worker", instance=PEER, state="gone", books_closed=True)
    await bus.publish(subjects.lease(PEER), lease.encode())
    await eventually(lambda: not board.lives(PEER))
    assert (lost, closed) == ([PEER], [PEER])


async def test_a_watcher_that_fails_does_not_end_the_lease(caplog: pytest.LogCaptureFixture) -> None:
    clock, bus = HandClock(), MemoryBus()
    beats: list[str] = []
    await bus.subscribe(subjects.LEASE_ALL, lambda message: beats.append(message.subject))

    def fail(instance: str) -> None:
        raise ValueError(instance)

    async with running_node(bus, "prompt_builder", clock=clock.clock) as node:
        node.leases.watch("never-seen", fail)
        clock.move(60)
        await eventually(lambda: "the lease failed" in caplog.text)
        told = len(beats)
        await eventually(lambda: len(beats) > told)
