"""The life of a request inside one actor."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from baton_common.actor import Actor
from baton_common.bus import BusMessage
from baton_common.cancels import broadcast_cancel
from baton_common.context import RequestContext
from baton_common.errors import RequestFailed
from baton_common.intake import InboxLimits
from baton_common.memory_bus import MemoryBus
from baton_common.node import Node
from baton_contracts import subjects
from baton_contracts.envelope import Envelope
from baton_contracts.frames import Cancel, Error, Held, decode_frame
from baton_contracts.handoffs import Ack, GuardInHandoff, PromptHandoff
from baton_contracts.prompt import Prompt
from baton_contracts.spans import SpanBatch
from tests.support.relay import eventually, make_chat, make_envelope, running_node

Handler = Callable[[RequestContext, PromptHandoff], Awaitable[None]]


class Rig:
    """One prompt builder actor with a handler of the test's choice, and everything it says to the edge."""

    def __init__(self, bus: MemoryBus, node: Node) -> None:
        self.bus = bus
        self.node = node
        self.to_edge: list[Held | Error] = []
        self.traces: list[SpanBatch] = []

    async def listen(self) -> None:
        await self.bus.subscribe("baton.v1.reply.*.*", self._on_reply)
        await self.bus.subscribe("baton.v1.trace.*", self._on_trace)

    def _on_reply(self, message: BusMessage) -> None:
        frame = decode_frame(message.payload)
        assert isinstance(frame, Held | Error)
        self.to_edge.append(frame)

    def _on_trace(self, message: BusMessage) -> None:
        self.traces.append(SpanBatch.decode(message.payload))

    async def start(self, handle: Handler, limits: InboxLimits | None = None) -> Actor[PromptHandoff]:
        actor = Actor(
            self.node,
            subject=subjects.PROMPT_ALL,
            message=PromptHandoff,
            handle=handle,
            stop_number=3,
            limits=limits,
        )
        self.node.add(actor)
        await self.node.become_ready()
        return actor

    async def hand(self, envelope: Envelope) -> Ack:
        payload = PromptHandoff(envelope=envelope, chat=make_chat()).encode()
        return Ack.decode(await self.bus.request(subjects.prompt(envelope.request_id), payload, timeout=1))

    @property
    def errors(self) -> list[Error]:
        return [frame for frame in self.to_edge if isinstance(frame, Error)]


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    bus = MemoryBus()
    async with running_node(bus, "prompt_builder") as node:
        rig = Rig(bus, node)
        await rig.listen()
        yield rig


async def nothing(context: RequestContext, message: PromptHandoff) -> None:
    return None


async def test_a_request_is_held_and_traced(rig: Rig) -> None:
    await rig.start(nothing)
    envelope = make_envelope(edge="edge_api-11111111")
    ack = await rig.hand(envelope)
    assert (ack.verdict, ack.instance) == ("held", rig.node.instance)
    await eventually(lambda: bool(rig.traces))
    assert rig.to_edge == []  # it handed it on itself: the ack has told it
    names = {span.name: span for span in rig.traces[0].spans}
    assert set(names) - {"mailbox"} == {"hop", "handle"}  # it may wait for its turn on a busy machine
    assert names["handle"].stop == 3
    assert names["handle"].status == "ok"


async def test_the_edge_is_told_who_holds_what_others_handed_on(rig: Rig) -> None:
    async def later(context: RequestContext, message: GuardInHandoff) -> None:
        return None

    actor = Actor(
        rig.node, subject=subjects.GUARD_IN_ALL, message=GuardInHandoff, handle=later, stop_number=4
    )
    await actor.start()
    envelope = make_envelope(edge="edge_api-11111111")
    handoff = GuardInHandoff(
        envelope=envelope, chat=make_chat(), prompt=Prompt(messages=make_chat().messages)
    )
    await rig.bus.request(subjects.guard_in(envelope.request_id), handoff.encode(), timeout=1)
    await eventually(lambda: bool(rig.to_edge))
    assert [(frame.kind, frame.sender) for frame in rig.to_edge] == [("held", rig.node.instance)]


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"{", "invalid_request"),
        (b"\xff\xfe", "invalid_request"),
        (json.dumps({"envelope": {}}).encode(), "invalid_request"),
    ],
)
async def test_a_message_that_is_none_is_refused(rig: Rig, payload: bytes, code: str) -> None:
    await rig.start(nothing)
    ack = Ack.decode(await rig.bus.request(subjects.prompt("0" * 32), payload, timeout=1))
    assert ack.verdict == "refused"
    assert ack.error is not None
    assert ack.error.code == code


async def test_another_major_contract_is_refused(rig: Rig) -> None:
    await rig.start(nothing)
    ack = await rig.hand(make_envelope(contract="2.0"))
    assert ack.verdict == "refused"
    ack = await rig.hand(make_envelope(contract="1.99"))
    assert ack.verdict == "held"


async def test_nothing_is_taken_after_its_deadline(rig: Rig) -> None:
    await rig.start(nothing)
    ack = await rig.hand(make_envelope(seconds=-1))
    assert ack.error is not None
    assert ack.error.code == "deadline_exceeded"


async def test_a_full_mailbox_says_busy_and_room_comes_back(rig: Rig) -> None:
    go = asyncio.Event()

    async def wait(context: RequestContext, message: PromptHandoff) -> None:
        await go.wait()

    actor = await rig.start(wait, InboxLimits(concurrency=1, mailbox=1))
    assert [(await rig.hand(make_envelope())).verdict for _ in range(3)] == ["held", "held", "busy"]
    go.set()
    await eventually(lambda: actor.num_held == 0)
    assert (await rig.hand(make_envelope())).verdict == "held"


async def test_only_as_many_run_at_once_as_allowed(rig: Rig) -> None:
    running, most = 0, 0
    go = asyncio.Event()

    async def count(context: RequestContext, message: PromptHandoff) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go.wait()
        running -= 1

    actor = await rig.start(count, InboxLimits(concurrency=2, mailbox=50))
    for _ in range(20):
        await rig.hand(make_envelope())
    assert running == 2
    go.set()
    await eventually(lambda: actor.num_held == 0)
    assert most == 2


async def test_the_same_handoff_again_is_held_once_and_another_is_a_conflict(rig: Rig) -> None:
    go = asyncio.Event()
    calls = 0

    async def wait(context: RequestContext, message: PromptHandoff) -> None:
        nonlocal calls
        calls += 1
        await go.wait()

    await rig.start(wait)
    envelope = make_envelope()
    assert (await rig.hand(envelope)).verdict == "held"
    assert (await rig.hand(envelope)).verdict == "held"
    conflict = await rig.hand(envelope.model_copy(update={"run_id": "ffffffff"}))
    assert conflict.error is not None
    assert conflict.error.code == "conflict"
    go.set()
    assert calls == 1


async def test_a_failed_request_is_answered_with_its_error(rig: Rig) -> None:
    async def refuse(context: RequestContext, message: PromptHandoff) -> None:
        raise RequestFailed.because("content_filter", "No.", param="messages")

    await rig.start(refuse)
    await rig.hand(make_envelope())
    await eventually(lambda: bool(rig.errors))
    error = rig.errors[0].error
    assert (error.code, error.param, error.stop) == ("content_filter", "messages", "prompt_builder")


async def test_an_error_that_comes_while_the_bus_is_away_is_told_when_it_is_back(rig: Rig) -> None:
    lost = asyncio.Event()

    async def lose_the_bus(context: RequestContext, message: PromptHandoff) -> None:
        rig.bus.online = False
        lost.set()
        raise RequestFailed.because("bus_unavailable", "The bus is away.")

    actor = await rig.start(lose_the_bus)
    await rig.hand(make_envelope())
    await lost.wait()
    assert (rig.errors, actor.num_held) == ([], 1)
    rig.bus.online = True
    await eventually(lambda: bool(rig.errors))
    assert rig.errors[0].error.code == "bus_unavailable"


async def test_an_error_that_nobody_can_be_told_is_held_until_the_deadline_only(rig: Rig) -> None:
    async def lose_the_bus(context: RequestContext, message: PromptHandoff) -> None:
        rig.bus.online = False
        raise RequestFailed.because("bus_unavailable", "The bus is away.")

    actor = await rig.start(lose_the_bus)
    await rig.hand(make_envelope(seconds=0.05))
    await eventually(lambda: not actor.num_held)
    assert rig.errors == []
    rig.bus.online = True


async def test_a_bug_fails_its_request_only(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    async def stumble(context: RequestContext, message: PromptHandoff) -> None:
        if context.envelope.conversation_id == "bad":
            raise ZeroDivisionError

    actor = await rig.start(stumble)
    await rig.hand(make_envelope(conversation_id="bad"))
    await rig.hand(make_envelope())
    await eventually(lambda: len(rig.traces) == 2)
    assert [error.error.code for error in rig.errors] == ["stop_failed"]
    assert "ZeroDivisionError" in caplog.text
    assert actor.num_held == 0


async def test_a_deadline_ends_a_slow_handler(rig: Rig) -> None:
    async def slow(context: RequestContext, message: PromptHandoff) -> None:
        await asyncio.Event().wait()

    await rig.start(slow)
    await rig.hand(make_envelope(seconds=0.05))
    await eventually(lambda: bool(rig.errors))
    assert rig.errors[0].error.code == "deadline_exceeded"


async def test_cancel_stops_exactly_that_request_and_is_acknowledged(rig: Rig) -> None:
    async def wait(context: RequestContext, message: PromptHandoff) -> None:
        await asyncio.Event().wait()

    actor = await rig.start(wait)
    first, second = make_envelope(request_id="a" * 32), make_envelope(request_id="a" * 31 + "b")
    await rig.hand(first)
    await rig.hand(second)
    cancel = Cancel(request_id=first.request_id, reason="client_disconnected")
    acks = await broadcast_cancel(rig.bus, cancel, timeout=1, enough=1)
    assert [ack.stop for ack in acks] == ["prompt_builder"]
    assert actor.num_held == 1
    assert not rig.errors
    assert rig.traces[0].spans[-1].status == "cancelled"
    assert rig.traces[0].spans[-1].attributes["cancelled"] == "client_disconnected"


async def test_a_cancel_that_overtakes_its_request_stops_it_too(rig: Rig) -> None:
    started = list[str]()

    async def wait(context: RequestContext, message: PromptHandoff) -> None:
        started.append(context.envelope.run_id)
        await asyncio.Event().wait()

    actor = await rig.start(wait)
    envelope = make_envelope(run_id="11111111")
    cancel = Cancel(request_id=envelope.request_id, reason="client_disconnected", run_id="11111111")
    await broadcast_cancel(rig.bus, cancel, timeout=0.01, enough=1)
    await rig.hand(envelope)
    await eventually(lambda: bool(rig.traces) and actor.num_held == 0)
    assert rig.traces[0].spans[-1].status == "cancelled"
    await rig.hand(envelope.model_copy(update={"run_id": "22222222"}))  # the same id, asked anew
    await eventually(lambda: "22222222" in started)
    assert actor.num_held == 1


async def test_a_cancel_of_an_attempt_that_overtakes_it_stops_no_other(rig: Rig) -> None:
    started: list[int] = []

    async def wait(context: RequestContext, message: PromptHandoff) -> None:
        started.append(context.envelope.attempt)
        await asyncio.Event().wait()

    actor = await rig.start(wait)
    envelope = make_envelope(run_id="11111111")
    cancel = Cancel(request_id=envelope.request_id, reason="superseded", attempt=1, run_id="11111111")
    await broadcast_cancel(rig.bus, cancel, timeout=0.01, enough=1)
    await rig.hand(envelope)
    await eventually(lambda: bool(rig.traces) and actor.num_held == 0)
    await rig.hand(envelope.model_copy(update={"attempt": 2}))
    await eventually(lambda: 2 in started)
    assert actor.num_held == 1


async def test_a_cancel_that_is_swallowed_is_given_again(rig: Rig) -> None:
    swallowed = list[int]()

    async def stubborn(context: RequestContext, message: PromptHandoff) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            swallowed.append(1)
        await asyncio.Event().wait()

    actor = await rig.start(stubborn)
    envelope = make_envelope()
    await rig.hand(envelope)
    cancel = Cancel(request_id=envelope.request_id, reason="client_disconnected")
    assert len(await broadcast_cancel(rig.bus, cancel, timeout=2, enough=1)) == 1
    assert (swallowed, actor.num_held) == ([1], 0)


async def test_a_cancel_of_another_attempt_does_not_touch_this_one(rig: Rig) -> None:
    async def wait(context: RequestContext, message: PromptHandoff) -> None:
        await asyncio.Event().wait()

    actor = await rig.start(wait)
    envelope = make_envelope(attempt=2)
    await rig.hand(envelope)
    cancel = Cancel(request_id=envelope.request_id, reason="superseded", attempt=1)
    await broadcast_cancel(rig.bus, cancel, timeout=0.05, enough=1)
    assert actor.num_held == 1


async def test_a_request_whose_deadline_passes_in_the_mailbox_ends_there(rig: Rig) -> None:
    async def wait(context: RequestContext, message: PromptHandoff) -> None:
        await asyncio.Event().wait()

    actor = await rig.start(wait, InboxLimits(concurrency=1, mailbox=1))
    await rig.hand(make_envelope())
    await rig.hand(late := make_envelope(seconds=0.05))
    await eventually(lambda: bool(rig.errors))
    assert [(error.request_id, error.error.code) for error in rig.errors] == [
        (late.request_id, "deadline_exceeded")
    ]
    assert actor.num_held == 1


async def test_drain_finishes_what_is_held_and_takes_nothing_new(rig: Rig) -> None:
    go = asyncio.Event()

    async def wait(context: RequestContext, message: PromptHandoff) -> None:
        await go.wait()

    actor = await rig.start(wait)
    await rig.hand(make_envelope())
    draining = asyncio.create_task(rig.node.drain(5))
    await eventually(lambda: rig.node.state == "draining")
    assert actor.num_held == 1
    go.set()
    await draining
    assert actor.num_held == 0
    assert not rig.errors
