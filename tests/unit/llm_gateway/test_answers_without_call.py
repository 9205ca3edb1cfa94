"""An answer from the cache, or of a call that is followed, when its way out is closed for a while."""

from __future__ import annotations

import asyncio

import pytest

from baton_common.bus import BusMessage
from baton_common.context import RequestContext
from baton_common.frame_sender import FrameOutbox, FrameStream
from baton_common.memory_bus import MemoryBus
from baton_common.node import Node
from baton_common.tracing import SpanRecorder
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Error, Usage, decode_frame
from baton_contracts.handoffs import GatewayHandoff
from baton_contracts.prompt import ChatRequest, Message, Part, Prompt
from baton_llm_gateway.attempt import Attempt
from baton_llm_gateway.cached_answer import send_cached
from baton_llm_gateway.cancellation import Cancellation
from baton_llm_gateway.errand import Errand
from baton_llm_gateway.follower import Follower
from baton_llm_gateway.model_choice import Choice
from baton_llm_gateway.response_cache import CachedAnswer
from baton_llm_gateway.single_flight import Flight
from tests.support.relay import make_envelope
from tests.support.waiting import eventually

GUARD = "output_guardrails-1"


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


def context(bus: MemoryBus) -> RequestContext:
    node = Node(bus, "llm_gateway")
    return RequestContext(
        node, make_envelope(edge="edge_api-1"), SpanRecorder(node.service, node.instance, 5, node.clock)
    )


def errand_of(ctx: RequestContext) -> Errand:
    messages = (Message(role="user", parts=(Part(text="Hello?"),)),)
    handoff = GatewayHandoff(
        envelope=ctx.envelope,
        chat=ChatRequest(model="m", messages=messages),
        prompt=Prompt(messages=messages),
    )
    return Errand.of(ctx, handoff, Choice("m", "named", ""), Cancellation(), GUARD)


async def test_a_hit_that_ends_at_its_deadline_leaves_no_stream_open() -> None:
    bus = FullBus()
    ctx = context(bus)
    outbox = Outbox(bus, ctx.node.instance)
    hit = CachedAnswer("Hello", "stop", Usage())
    sending = asyncio.create_task(send_cached(errand_of(ctx), outbox, hit))
    await eventually(lambda: bus.is_waited_for)

    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending

    assert not outbox.opened.is_open


async def test_a_follower_says_why_there_is_no_answer_once_the_bus_is_back() -> None:
    bus, heard = MemoryBus(), list[Error]()
    ctx = context(bus)

    def hear(message: BusMessage) -> None:
        frame = decode_frame(message.payload)
        assert isinstance(frame, Error)
        heard.append(frame)

    errand = errand_of(ctx)
    await bus.subscribe(errand.way, hear)
    last, flight = Attempt(1, "m", 0.0), Flight()
    last.fail(ErrorBody(code="invalid_request", message="No such parameter.", stop="llm_gateway"))
    flight.end(last)
    outbox = FrameOutbox(bus, ctx.node.instance)
    bus.online = False
    following = asyncio.create_task(Follower(errand, flight, outbox).run())
    await asyncio.sleep(0)
    bus.online = True

    assert await following
    await eventually(lambda: bool(heard))
    assert heard[0].error.code == "invalid_request"
