"""Whose seats are free again: of an edge that is gone, not of one that was silent for a moment."""

from __future__ import annotations

from baton_common.leases import LeaseBoard
from baton_common.memory_bus import MemoryBus
from baton_contracts import subjects
from baton_contracts.heartbeats import Lease, State
from baton_edge_api.limits.gone_edges import GoneEdges
from tests.support.relay import HandClock, eventually

OTHER = "edge_api-00000002"


async def say(bus: MemoryBus, board: LeaseBoard, state: State = "ready") -> None:
    lease = Lease(service="edge_api", instance=OTHER, state=state)
    await bus.publish(subjects.lease(OTHER), lease.encode())
    await eventually(lambda: board.lives(OTHER) == (state == "ready"))


async def test_an_edge_that_is_heard_again_holds_its_seats_again() -> None:
    bus, clock = MemoryBus(), HandClock()
    board = LeaseBoard(bus, clock.clock, lost_after=3)
    await board.start()
    gone = GoneEdges(board)
    await say(bus, board)
    assert gone.among([OTHER]) == set()
    clock.move(3.1)
    board.check()
    assert gone.among([OTHER]) == {OTHER}
    assert gone.among([OTHER]) == {OTHER}
    await say(bus, board)
    assert gone.among([OTHER]) == set()
    await say(bus, board, "gone")
    assert gone.among([OTHER]) == {OTHER}


async def test_an_edge_that_was_never_heard_has_the_time_of_a_lease() -> None:
    clock = HandClock()
    board = LeaseBoard(MemoryBus(), clock.clock, lost_after=3)
    gone = GoneEdges(board)
    assert gone.among([OTHER]) == set()
    clock.move(2.9)
    board.check()
    assert gone.among([OTHER]) == set()
    clock.move(0.2)
    board.check()
    assert gone.among([OTHER]) == {OTHER}
