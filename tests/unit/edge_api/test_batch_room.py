"""When a line of a batch may start, by heartbeats whose figures are known."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from baton_contracts.heartbeats import ReplicaHeartbeat
from baton_edge_api.batches.room import Room, Ticket, seats_for_batches
from tests.support.relay import HandClock

CHAT = "/v1/chat/completions"


def beat(replica: str = "r1", model: str = "small", **figures: Any) -> ReplicaHeartbeat:
    values = {"max_running": 16} | figures
    return ReplicaHeartbeat(replica=replica, model=model, state="ready", sent_at=0.0, **values)


@pytest.mark.parametrize(
    ("figures", "seats"),
    [
        ({}, 14),  # an eighth of 16 is for people
        ({"num_running": 13}, 1),
        ({"num_running": 14}, 0),
        ({"num_running": 16}, 0),
        ({"num_waiting": 1}, 0),
        ({"kv_usage": 0.8}, 0),
        ({"max_running": 4}, 3),  # never less than one for people
        ({"max_running": 1}, 1),  # has none to spare
        ({"max_running": 1, "num_running": 1}, 0),
    ],
)
def test_seats_that_batches_may_take(figures: dict[str, Any], seats: int) -> None:
    assert seats_for_batches([beat(**figures)]) == seats


def test_somebody_who_waits_at_one_replica_keeps_batches_from_all() -> None:
    assert seats_for_batches([beat("r1"), beat("r2", num_waiting=1)]) == 0
    assert seats_for_batches([beat("r1", num_running=14), beat("r2")]) == 14


class Bench:
    """A room whose heartbeats, clock and embedder the test moves."""

    def __init__(self, *beats: ReplicaHeartbeat, max_lines: int = 100) -> None:
        self.beats = list(beats)
        self.clock = HandClock()
        self.embedder_questions = 0
        self.room = Room(
            lambda: self.beats,
            lambda: self.embedder_questions,
            lambda name: ("small", "large") if name == "auto" else (name,),
            lambda: self.clock.now,
            max_lines,
        )

    async def enter(self, model: str = "small", endpoint: str = CHAT) -> Ticket | None:
        """None: there is no room now."""
        try:
            async with asyncio.timeout(0.01):
                return await self.room.enter(endpoint, model)
        except TimeoutError:
            return None

    async def fill(self, model: str = "small", endpoint: str = CHAT) -> list[Ticket]:
        tickets: list[Ticket] = []
        while ticket := await self.enter(model, endpoint):
            tickets.append(ticket)
        return tickets


async def test_lines_that_no_heartbeat_has_seen_count_as_seats_taken() -> None:
    bench = Bench(beat(max_running=4))
    assert len(await bench.fill()) == 3
    bench.clock.move(1)
    bench.beats = [beat(max_running=4, num_running=3)]
    assert await bench.fill() == []
    bench.beats = [beat(max_running=4, num_running=2)]
    assert len(await bench.fill()) == 1


async def test_all_batches_together_have_a_bound() -> None:
    bench = Bench(beat(max_running=64), max_lines=5)
    tickets = await bench.fill()
    assert len(tickets) == 5
    bench.room.leave(tickets[0])
    assert await bench.enter()
    assert await bench.fill() == []


async def test_an_alias_waits_for_each_model_that_it_may_stand_for() -> None:
    bench = Bench(beat("r1", "small"), beat("r2", "large", num_waiting=1))
    assert await bench.enter("auto") is None
    assert await bench.enter("small")


async def test_a_model_without_heartbeats_gets_a_few_lines() -> None:
    bench = Bench(beat())
    assert len(await bench.fill("elsewhere")) == 4


async def test_embeddings_go_one_line_at_a_time_and_only_to_an_idle_embedder() -> None:
    bench = Bench()
    bench.embedder_questions = 1
    assert await bench.enter("any", "/v1/embeddings") is None
    bench.embedder_questions = 0
    assert len(await bench.fill("any", "/v1/embeddings")) == 1


async def test_the_youngest_line_steps_aside_for_somebody_who_still_waits() -> None:
    bench = Bench(beat(max_running=4))
    old, young = await bench.enter(), await bench.enter()
    assert old
    assert young
    bench.beats = [beat(max_running=4, num_running=4, num_waiting=1)]
    bench.room.look()
    assert not young.step_aside.is_set()  # it may be over in a moment
    bench.room.look()
    assert (old.step_aside.is_set(), young.step_aside.is_set()) == (False, True)
    bench.room.look()
    assert old.step_aside.is_set()


async def test_nobody_steps_aside_for_another_model() -> None:
    bench = Bench(beat("r1", "small"))
    ticket = await bench.enter("small")
    bench.beats.append(beat("r2", "large", num_waiting=3))
    bench.room.look()
    bench.room.look()
    assert ticket
    assert not ticket.step_aside.is_set()
