"""Frames of several requests that are sent at one moment: one message, and each means what it means alone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton_common import frame_post
from baton_common.bus import BusMessage
from baton_common.frame_inbox import Arrival, FrameInbox, FrameQueue
from baton_common.frame_sender import FrameOutbox, FrameStream
from baton_common.memory_bus import MemoryBus
from baton_contracts import subjects
from baton_contracts.frames import Data

ENGINE, GATEWAY, GUARD = "engine_worker-1", "llm_gateway-1", "output_guardrails-1"
RIDS = ["a" * 32, "b" * 32, "c" * 32]
BATCH = f"baton.v1.frames.{GATEWAY}.{GUARD}.batch"
SUBJECT = f"baton.v1.frames.{GATEWAY}.{GUARD}.{RIDS[0]}"


def data(rid: str, text: str) -> Data:
    return Data(request_id=rid, sender="x", seq=0, text=text)


@dataclass
class Bench:
    """An engine that answers all of RIDS, and the guard and the gateway that hear it."""

    bus: MemoryBus = field(default_factory=MemoryBus)
    readers: set[str] = field(default_factory=lambda: {GATEWAY, GUARD})
    messages: list[BusMessage] = field(default_factory=list[BusMessage])
    streams: dict[str, FrameStream] = field(default_factory=dict[str, FrameStream])
    queues: list[dict[str, FrameQueue]] = field(default_factory=list[dict[str, FrameQueue]])
    outbox: FrameOutbox = field(init=False)

    async def start(self, rids: Sequence[str] = RIDS) -> Bench:
        self.outbox = FrameOutbox(self.bus, ENGINE, lambda names: set(names) <= self.readers)
        await self.outbox.start()
        await self.bus.subscribe(f"{subjects.ROOT}.frames.*.*.*", self.messages.append)
        for subject in (subjects.frames_of_guard(GUARD), subjects.frames_of_gateway(GATEWAY)):
            inbox = FrameInbox(self.bus, subject)
            await inbox.start()
            self.queues.append({rid: inbox.open(rid) for rid in rids})
        for rid in rids:
            self.streams[rid] = self.outbox.open(subjects.frames(GATEWAY, GUARD, rid), rid, 1)
        return self

    async def step(self, text: str) -> None:
        await asyncio.gather(*(stream.send(data(rid, text)) for rid, stream in self.streams.items()))
        await asyncio.sleep(0)

    async def heard(self, count: int) -> list[dict[str, str]]:
        """By guard and gateway: the next frames of each request."""
        said: list[dict[str, str]] = []
        for queues in self.queues:
            texts: dict[str, str] = {}
            for rid, queue in queues.items():
                frames = [await queue.get(0.05) for _ in range(count)]
                texts[rid] = "".join(frame.text for frame in frames if isinstance(frame, Data))
            said.append(texts)
        return said


async def test_a_step_is_one_message_for_guard_and_gateway() -> None:
    bench = await Bench().start()
    await bench.step("one ")
    await bench.step("two ")
    assert [message.subject for message in bench.messages] == [BATCH, BATCH]
    assert await bench.heard(2) == [dict.fromkeys(RIDS, "one two ")] * 2


async def test_a_lone_stream_waits_for_nobody() -> None:
    bench = await Bench().start(RIDS[:1])
    sending = bench.streams[RIDS[0]].send(data(RIDS[0], "x"))
    with pytest.raises(StopIteration):
        sending.send(None)  # not one turn of the loop
    await asyncio.sleep(0)
    assert [message.subject for message in bench.messages] == [SUBJECT]


@pytest.mark.parametrize(("readers", "messages"), [({GUARD, GATEWAY}, [BATCH]), (set[str](), [SUBJECT] * 3)])
async def test_what_a_stream_has_at_once_is_one_message(readers: set[str], messages: list[str]) -> None:
    bench = await Bench(readers=readers).start(RIDS[:1])
    sending = bench.streams[RIDS[0]].send_all([data(RIDS[0], text) for text in ("one ", "two ", "three")])
    with pytest.raises(StopIteration):
        sending.send(None)  # not one turn of the loop
    await asyncio.sleep(0)
    assert [message.subject for message in bench.messages] == messages
    assert await bench.heard(3) == [{RIDS[0]: "one two three"}] * 2


async def test_several_streams_that_have_several_frames_each_share_one_message() -> None:
    bench = await Bench().start()
    frames = {rid: [data(rid, "one "), data(rid, "two")] for rid in RIDS}
    await asyncio.gather(*(bench.streams[rid].send_all(frames[rid]) for rid in RIDS))
    await asyncio.sleep(0)
    assert [message.subject for message in bench.messages] == [BATCH]
    assert await bench.heard(2) == [dict.fromkeys(RIDS, "one two")] * 2


async def test_streams_that_have_ended_are_waited_for_no_more() -> None:
    bench = await Bench().start()
    for rid in RIDS[1:]:
        bench.outbox.ended(bench.streams[rid])
        bench.outbox.ended(bench.streams[rid])
    with pytest.raises(StopIteration):
        bench.streams[RIDS[0]].send(data(RIDS[0], "x")).send(None)


@pytest.mark.parametrize("readers", [set[str](), {GUARD}, {GATEWAY}])
async def test_unless_all_readers_said_that_they_read_batches_frames_go_one_by_one(readers: set[str]) -> None:
    bench = await Bench(readers=readers).start()
    await bench.step("x")
    assert sorted(subjects.request_id_of(message.subject) for message in bench.messages) == RIDS
    assert await bench.heard(1) == [dict.fromkeys(RIDS, "x")] * 2


async def test_a_lost_batch_is_mended_by_each_request_for_itself() -> None:
    bench = await Bench().start()
    await bench.step("one ")
    bench.bus.online = False
    await bench.step("two ")
    bench.bus.online = True
    await bench.step("three")
    assert await bench.heard(3) == [dict.fromkeys(RIDS, "one two three")] * 2


async def test_a_batch_that_can_not_be_read_is_a_warning_and_a_gap(caplog: pytest.LogCaptureFixture) -> None:
    bench = await Bench().start()
    await bench.step("one ")
    with caplog.at_level(logging.WARNING):
        await bench.bus.publish(BATCH, b'{"frames":[{"kind":"data"}]}')
        await bench.step("two")
    assert caplog.text.count("frame ignored") == 2  # by the guard and by the gateway
    assert await bench.heard(2) == [dict.fromkeys(RIDS, "one two")] * 2


async def test_frames_of_requests_that_are_over_are_nobodys() -> None:
    bench = await Bench().start()
    for queues in bench.queues:
        queues.pop(RIDS[1]).close()
    await bench.step("x")
    assert await bench.heard(1) == [{RIDS[0]: "x", RIDS[2]: "x"}] * 2


async def test_what_is_too_much_for_one_message_is_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_post, "MOST_BATCH_BYTES", 1500)
    bench = await Bench().start()
    await bench.step("x" * 500)  # about 620 bytes each: two fit
    assert [len(message.payload) // 1000 for message in bench.messages] == [1, 0]
    await bench.step("y" * 2000)
    assert [message.subject for message in bench.messages] == [BATCH] * 5
    assert await bench.heard(2) == [dict.fromkeys(RIDS, "x" * 500 + "y" * 2000)] * 2


async def test_when_the_first_of_a_turn_is_cancelled_the_others_frames_still_go() -> None:
    bench = await Bench().start()
    sending = [asyncio.create_task(bench.streams[rid].send(data(rid, "x"))) for rid in RIDS]
    await asyncio.sleep(0)  # all have sent; the first one waits for its turn to be over
    sending[0].cancel()
    await asyncio.wait(sending)
    assert [task.cancelled() for task in sending] == [True, False, False]
    assert await bench.heard(1) == [dict.fromkeys(RIDS, "x")] * 2
    await bench.step("y")
    assert await bench.heard(1) == [dict.fromkeys(RIDS, "y")] * 2


@given(turns=st.lists(st.lists(st.sampled_from(RIDS), max_size=5), max_size=6))
async def test_however_sends_fall_into_turns_each_request_has_its_frames_in_order(
    turns: list[list[str]],
) -> None:
    bench = await Bench().start()
    sent = dict.fromkeys(RIDS, "")
    for turn in turns:
        sending: list[asyncio.Task[Data]] = []
        for rid in turn:
            letter = chr(97 + len(sent[rid]))
            sent[rid] += letter
            sending.append(asyncio.create_task(bench.streams[rid].send(data(rid, letter))))
        await asyncio.sleep(0)
    for _ in range(4):
        await asyncio.sleep(0)
    for queues in bench.queues:
        for rid, queue in queues.items():
            frames = [await queue.get(0.05) for _ in sent[rid]]
            assert "".join(frame.text for frame in frames if isinstance(frame, Data)) == sent[rid]
    assert len(bench.messages) <= sum(1 for turn in turns if turn) + 1


async def test_one_timer_serves_all_waits_and_rings_for_the_last_one() -> None:
    arrival = Arrival()
    first = asyncio.create_task(arrival.within(30))
    await asyncio.sleep(0)
    timer = arrival._timer
    arrival.happened()
    assert await first
    second = asyncio.create_task(arrival.within(60))
    await asyncio.sleep(0)
    assert arrival._timer is timer
    arrival._ring()  # at the first wait's time
    assert not second.done()
    assert arrival._timer is not None
    assert arrival._timer.when() == arrival._until
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert not await arrival.within(0.001)  # a shorter one is not late
