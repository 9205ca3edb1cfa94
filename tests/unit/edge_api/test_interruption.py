from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from baton_contracts.errors import ErrorBody
from baton_edge_api.interruption import Interrupt, Interrupted, Interruption, Patience, Watchdog

LOST = Interrupt(ErrorBody(code="stop_lost", message="x"), "lease_lost")
LEFT = Interrupt(ErrorBody(code="client_closed_request", message="x"), "client_disconnected")


async def test_a_trip_ends_the_block_and_only_the_block() -> None:
    interruption = Interruption()
    asyncio.get_running_loop().call_soon(interruption.trip, LOST)
    with pytest.raises(Interrupted) as caught:
        async with interruption:
            await asyncio.Event().wait()
    assert caught.value.interrupt is LOST
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_the_first_trip_counts() -> None:
    interruption = Interruption()
    interruption.trip(LEFT)
    interruption.trip(LOST)
    with pytest.raises(Interrupted) as caught:
        async with interruption:
            pytest.fail("the block must not begin")
    assert caught.value.interrupt is LEFT


async def test_a_trip_after_the_block_does_nothing() -> None:
    interruption = Interruption()
    async with interruption:
        await asyncio.sleep(0)
    interruption.trip(LOST)
    await asyncio.sleep(0)


async def test_a_cancel_from_elsewhere_stays_a_cancel() -> None:
    entered = asyncio.Event()

    async def work() -> None:
        async with Interruption():
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_trip_passes_through_a_timeout_inside() -> None:
    interruption = Interruption()
    asyncio.get_running_loop().call_soon(interruption.trip, LOST)
    with pytest.raises(Interrupted):
        async with interruption, asyncio.timeout(60):
            await asyncio.Event().wait()


async def test_a_trip_comes_again_where_the_first_was_swallowed() -> None:
    interruption = Interruption()
    asyncio.get_running_loop().call_soon(interruption.trip, LOST)
    swallowed: list[str] = []

    async def deaf() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:  # as asyncio.wait_for does when its result comes at the same time
            swallowed.append("once")
        await asyncio.Event().wait()

    with pytest.raises(Interrupted):
        async with interruption:
            await deaf()
    task = asyncio.current_task()
    assert task is not None
    assert (swallowed, task.cancelling()) == (["once"], 0)


@dataclass
class FakeLoop:
    """A clock that is moved by hand; runs what is due."""

    now: float = 100.0
    timers: list[tuple[float, Callable[[], None]]] = field(default_factory=list[Any])

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> Any:
        entry = (when, callback)
        self.timers.append(entry)

        class Handle:
            def cancel(_) -> None:  # noqa: N805
                if entry in self.timers:
                    self.timers.remove(entry)

        return Handle()

    def move(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [entry for entry in self.timers if entry[0] <= end]:
            entry = min(due, key=lambda timer: timer[0])
            self.timers.remove(entry)
            self.now = max(self.now, entry[0])
            entry[1]()
        self.now = end


PATIENCE = Patience(keep_alive=15, idle=120, write=30, total=300)


@dataclass
class Watched:
    loop: FakeLoop = field(default_factory=FakeLoop)
    tripped: list[str] = field(default_factory=list[str])
    pings: list[float] = field(default_factory=list[float])

    def __post_init__(self) -> None:
        loop = cast(asyncio.AbstractEventLoop, self.loop)
        self.dog = Watchdog(PATIENCE, lambda found: self.tripped.append(found.error.code), loop)
        self.dog.start()


def test_silence_of_the_relay_ends_the_request() -> None:
    watched = Watched()
    watched.loop.move(119.9)
    assert watched.tripped == []
    watched.loop.move(0.2)
    assert watched.tripped == ["idle_timeout"]


def test_a_frame_begins_the_silence_anew() -> None:
    watched = Watched()
    watched.loop.move(100)
    watched.dog.last_frame = watched.loop.now
    watched.loop.move(119)
    assert watched.tripped == []
    watched.loop.move(2)
    assert watched.tripped == ["idle_timeout"]


def test_the_deadline_holds_whatever_comes() -> None:
    watched = Watched()
    for _ in range(299):
        watched.dog.last_frame = watched.loop.now
        watched.loop.move(1)
    assert watched.tripped == []
    watched.dog.last_frame = watched.loop.now
    watched.loop.move(1.1)
    assert watched.tripped == ["deadline_exceeded"]


def test_a_stream_is_kept_alive_only_in_silence() -> None:
    watched = Watched()
    watched.dog.streams(lambda: watched.pings.append(watched.loop.now))
    watched.loop.move(10)
    watched.dog.last_write = watched.dog.last_frame = watched.loop.now
    watched.loop.move(14)
    assert watched.pings == []
    watched.loop.move(32)
    assert watched.pings == [125.0, 140.0, 155.0]


def test_before_the_stream_nothing_is_sent() -> None:
    watched = Watched()
    watched.loop.move(100)
    assert watched.pings == []


def test_a_client_that_takes_nothing_is_given_up_and_not_blamed_on_the_relay() -> None:
    watched = Watched()
    watched.dog.streams(lambda: watched.pings.append(watched.loop.now))
    watched.loop.move(1)
    watched.dog.writing_since = watched.loop.now
    watched.loop.move(61)
    assert watched.tripped == ["slow_consumer"]
    assert watched.pings == []


def test_a_stopped_dog_is_silent() -> None:
    watched = Watched()
    watched.dog.stop()
    watched.loop.move(1000)
    assert watched.tripped == []
