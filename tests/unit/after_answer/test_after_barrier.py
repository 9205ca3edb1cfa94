"""Read your own writes: when is everything that was stored before the question committed?"""

from __future__ import annotations

import asyncio
import json

import pytest

from baton_after_answer.barrier import CommitBarrier, has_passed
from baton_common.bus import BusMessage
from baton_common.errors import RequestFailed
from baton_common.jetstream import StreamState
from baton_common.memory_bus import MemoryBus
from baton_common.tasks import spawn


@pytest.mark.parametrize(
    ("state", "target", "expected"),
    [
        (StreamState(messages=0, first_seq=11, last_seq=10), 10, True),
        (StreamState(messages=3, first_seq=11, last_seq=13), 10, True),
        (StreamState(messages=4, first_seq=10, last_seq=13), 10, False),
        (StreamState(messages=1, first_seq=2, last_seq=13), 10, False),
        (StreamState(messages=0, first_seq=0, last_seq=0), 0, True),
    ],
)
def test_the_queue_tells_what_is_committed(state: StreamState, target: int, expected: bool) -> None:
    assert has_passed(state, target) is expected


class _Server:
    """Answers STREAM.INFO from a list of states; the last one stays."""

    def __init__(self, bus: MemoryBus, *states: tuple[int, int, int]) -> None:
        self.bus = bus
        self.states = list(states)
        self.asked = 0

    def on_message(self, message: BusMessage) -> None:
        self.asked += 1
        messages, first, last = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        state = {"messages": messages, "first_seq": first, "last_seq": last}
        spawn(self.bus.publish(message.reply, json.dumps({"state": state}).encode()))


async def _server(*states: tuple[int, int, int]) -> _Server:
    server = _Server(MemoryBus(), *states)
    await server.bus.subscribe("$JS.API.STREAM.INFO.AFTER", server.on_message)
    return server


async def test_with_an_empty_queue_one_look_is_enough() -> None:
    server = await _server((0, 8, 7))
    await CommitBarrier(server.bus, 1.0).wait()
    assert server.asked == 1


async def test_a_queue_that_can_not_be_asked_is_a_503() -> None:
    with pytest.raises(RequestFailed) as caught:
        await CommitBarrier(MemoryBus(), 1.0).wait()
    error = caught.value.error
    assert (error.code, error.status, error.retry_after_seconds) == ("bus_unavailable", 503, 1)


async def test_it_waits_for_what_was_there_and_not_for_what_comes_later() -> None:
    server = await _server((2, 6, 7), (2, 7, 8), (5, 8, 12))
    await CommitBarrier(server.bus, 1.0).wait()
    assert server.asked == 3


async def test_books_that_do_not_catch_up_are_a_503_that_says_how_far_behind() -> None:
    server = await _server((3, 5, 7))
    with pytest.raises(RequestFailed, match="3 records behind") as caught:
        await CommitBarrier(server.bus, 0.05).wait()
    assert (caught.value.error.status, caught.value.error.stop) == (503, "after_answer")


async def test_who_writes_knows_while_somebody_waits() -> None:
    server = await _server((1, 7, 7), (1, 7, 7), (0, 8, 7))
    barrier = CommitBarrier(server.bus, 1.0)
    asked = asyncio.create_task(barrier.asked())
    await asyncio.sleep(0)
    assert not asked.done()
    waiting = asyncio.create_task(barrier.wait())
    await asked
    assert not waiting.done()
    await waiting
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await barrier.asked()
