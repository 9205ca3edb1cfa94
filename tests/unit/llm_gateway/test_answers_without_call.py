"""An answer from the cache, or of a call that is followed: when its way out is closed for a while, and
when it is longer than a guard's queue."""

from __future__ import annotations

import asyncio

import pytest

from baton_common.bus import BusMessage
from baton_common.frame_inbox import QUEUE_FRAMES, FrameInbox, FrameQueue
from baton_common.frame_sender import FrameOutbox, FrameStream
from baton_common.memory_bus import MemoryBus
from baton_contracts import subjects
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Data, End, Error, Usage, decode_frame
from baton_llm_gateway.attempt import Attempt
from baton_llm_gateway.cached_answer import PIECE_CHARACTERS, send_cached
from baton_llm_gateway.errand import Errand
from baton_llm_gateway.follower import Follower
from baton_llm_gateway.response_cache import CachedAnswer
from baton_llm_gateway.single_flight import Flight
from tests.support.errands import GUARD, errand_over
from tests.support.waiting import eventually


class FullBus(MemoryBus):
    """Takes nothing: each publish waits."""

    is_waited_for = False

    async def publish(self, subject: str, payload: bytes, *, reply: str = "", within: float = 0.0) -> None:
        del subject, payload, reply
        self.is_waited_for = True
        await asyncio.Event().wait()


class Outbox(FrameOutbox):
    opened: FrameStream

    def open(self, subject: str, request_id: str, attempt: int, run_id: str = "") -> FrameStream:
        self.opened = super().open(subject, request_id, attempt, run_id)
        return self.opened


async def test_a_hit_that_ends_at_its_deadline_leaves_no_stream_open() -> None:
    bus = FullBus()
    errand = errand_over(bus)
    outbox = Outbox(bus, errand.ctx.node.instance)
    hit = CachedAnswer("Hello", "stop", Usage())
    sending = asyncio.create_task(send_cached(errand, outbox, hit))
    await eventually(lambda: bus.is_waited_for)

    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending

    assert not outbox.opened.is_open


async def test_a_follower_says_why_there_is_no_answer_once_the_bus_is_back() -> None:
    bus, heard = MemoryBus(), list[Error]()
    errand = errand_over(bus)

    def hear(message: BusMessage) -> None:
        frame = decode_frame(message.payload)
        assert isinstance(frame, Error)
        heard.append(frame)

    await bus.subscribe(errand.way, hear)
    last, flight = Attempt(1, "m", 0.0), Flight()
    last.fail(ErrorBody(code="invalid_request", message="No such parameter.", stop="llm_gateway"))
    flight.end(last)
    outbox = FrameOutbox(bus, errand.ctx.node.instance)
    bus.online = False
    following = asyncio.create_task(Follower(errand, flight, outbox).run())
    await asyncio.sleep(0)
    bus.online = True

    assert await following
    await eventually(lambda: bool(heard))
    assert heard[0].error.code == "invalid_request"


async def slow_guard(bus: MemoryBus, errand: Errand) -> FrameQueue:
    """It hears all, and takes nothing until it is asked for the answer."""
    inbox = FrameInbox(bus, subjects.frames_of_guard(GUARD))
    await inbox.start()
    return inbox.open(errand.ctx.request_id)


async def answer_of(queue: FrameQueue) -> str:
    text = ""
    while not isinstance(frame := await queue.get(), End):
        if isinstance(frame, Data):
            text += frame.text
    return text


async def test_who_joins_a_long_answer_late_does_not_flood_its_guard() -> None:
    bus = MemoryBus()
    errand = errand_over(bus)
    queue = await slow_guard(bus, errand)
    flight, last = Flight(), Attempt(1, "m", 0.0)
    words = [f"{number} " for number in range(2 * QUEUE_FRAMES)]
    for word in words:
        flight.add("m", Data(request_id="b" * 32, sender="x", seq=0, text=word))
    last.end(End(request_id="b" * 32, sender="x", seq=0, finish_reason="stop", usage=Usage()))
    flight.end(last)

    assert await Follower(errand, flight, FrameOutbox(bus, errand.ctx.node.instance)).run()

    assert await answer_of(queue) == "".join(words)


async def test_nor_does_a_long_answer_from_the_cache() -> None:
    bus = MemoryBus()
    errand = errand_over(bus)
    queue = await slow_guard(bus, errand)
    text = "0123456789abcdef" * (PIECE_CHARACTERS // 16 * (QUEUE_FRAMES + 10))

    await send_cached(errand, FrameOutbox(bus, errand.ctx.node.instance), CachedAnswer(text, "stop", Usage()))

    assert await answer_of(queue) == text
