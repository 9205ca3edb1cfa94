"""Numbered frames between a sender and a receiver: order, duplicates, gaps, the end of a sender."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton_common import frame_sender
from baton_common.bus import BusMessage
from baton_common.errors import StreamBroken
from baton_common.frame_inbox import FrameInbox, FrameQueue, QueueOverflow
from baton_common.frame_sender import (
    KEPT_STREAMS,
    MOST_RESENT_BYTES,
    RING_FRAMES,
    FrameOutbox,
    FrameStream,
)
from baton_common.memory_bus import MemoryBus
from baton_contracts import subjects
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Data, End, Error, Resend, Resent, Usage, encode_frame
from tests.support.waiting import eventually

RID = "c" * 32
SENDER = "engine_worker-00000001"


def data(seq: int, *, sender: str = SENDER, attempt: int = 1) -> Data:
    return Data(request_id=RID, sender=sender, seq=seq, attempt=attempt, text=str(seq))


def end() -> End:
    return End(request_id=RID, sender=SENDER, seq=0, finish_reason="stop", usage=Usage())


async def receiver(bus: MemoryBus) -> tuple[FrameInbox, FrameQueue]:
    inbox = FrameInbox(bus, subjects.reply_all("edge_api-1"))
    await inbox.start()
    return inbox, inbox.open(RID)


async def sender(bus: MemoryBus) -> tuple[FrameOutbox, FrameStream]:
    outbox = FrameOutbox(bus, SENDER)
    await outbox.start()
    return outbox, outbox.open(subjects.reply("edge_api-1", RID), RID, 1)


async def texts(queue: FrameQueue, count: int) -> list[str]:
    frames = [await queue.get(0.05) for _ in range(count)]
    return [frame.text for frame in frames if isinstance(frame, Data)]


async def test_frames_arrive_numbered_and_in_order() -> None:
    bus = MemoryBus()
    _, queue = await receiver(bus)
    _, stream = await sender(bus)
    for number in range(3):
        await stream.send(data(99 + number))
    got = [await queue.get() for _ in range(3)]
    assert [frame.seq for frame in got] == [0, 1, 2]
    assert [frame.sender for frame in got] == [SENDER] * 3


@given(order=st.permutations(range(6)), repeat=st.integers(0, 5))
async def test_any_order_with_duplicates_gives_the_same_text(order: list[int], repeat: int) -> None:
    bus = MemoryBus()
    _, queue = await receiver(bus)
    _, stream = await sender(bus)
    bus.online = False
    for number in range(6):
        await stream.send(data(number))
    bus.online = True
    for number in [*order, repeat]:
        queue.put(data(number))
    assert await texts(queue, 6) == ["0", "1", "2", "3", "4", "5"]
    assert len(queue) <= 7


async def test_a_gap_is_filled_by_the_sender() -> None:
    bus = MemoryBus()
    _, queue = await receiver(bus)
    _, stream = await sender(bus)
    await stream.send(data(0))
    assert await texts(queue, 1) == ["0"]
    bus.online = False  # the next one is lost on the way
    await stream.send(data(1))
    bus.online = True
    await stream.send(data(2))
    assert await texts(queue, 2) == ["1", "2"]


async def test_a_lost_tail_is_found_by_asking_after_silence() -> None:
    bus = MemoryBus()
    _, queue = await receiver(bus)
    outbox, stream = await sender(bus)
    await stream.send(data(0))
    assert await texts(queue, 1) == ["0"]
    bus.online = False
    await stream.send(end())
    outbox.ended(stream)
    bus.online = True
    assert (await queue.get(stall_seconds=0.01)).kind == "end"


async def test_of_a_long_tail_so_much_is_sent_again_at_once_and_the_rest_when_it_is_asked_for() -> None:
    bus = MemoryBus()
    _, queue = await receiver(bus)
    _, stream = await sender(bus)
    sizes, request = list[int](), bus.request

    async def weighed(subject: str, payload: bytes, *, timeout: float) -> bytes:
        answer = await request(subject, payload, timeout=timeout)
        sizes.append(len(answer))
        return answer

    bus.request = weighed  # type: ignore[method-assign]
    long = [f"{number}" * 100_000 for number in range(10)]
    bus.online = False
    for text in long:
        await stream.send(data(0).model_copy(update={"text": text}))
    bus.online = True
    await stream.send(end())
    got = [await queue.get(0.01) for _ in range(11)]
    assert [frame.text for frame in got if isinstance(frame, Data)] == long
    assert len(sizes) == 2
    assert max(sizes) < MOST_RESENT_BYTES + 1000


async def test_what_ended_streams_keep_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_sender, "KEPT_BYTES", 2500)
    bus = MemoryBus()
    outbox, _ = await sender(bus)
    ids = [f"{number:032x}" for number in range(3)]
    for request_id in ids:
        stream = outbox.open(subjects.reply("edge_api-1", request_id), request_id, 1)
        await stream.send(data(0).model_copy(update={"text": "x" * 1000}))
        outbox.ended(stream)
    ask = Resend(attempt=1, first_seq=0).encode()
    answers = [await bus.request(subjects.resend(SENDER, each), ask, timeout=1) for each in ids]
    assert [Resent.decode(answer).available for answer in answers] == [False, True, True]


async def test_a_gap_that_nobody_can_fill_is_an_error() -> None:
    bus = MemoryBus()
    _, queue = await receiver(bus)
    _, stream = await sender(bus)
    for number in range(RING_FRAMES + 5):
        await stream.send(data(number))
        if number == 0:
            await queue.get()
            queue.close()
    late = FrameQueue(bus, RID, 10, lambda: None)
    late.put(data(0))
    await late.get()
    late.put(data(RING_FRAMES + 4))
    with pytest.raises(StreamBroken) as broken:
        await late.get()
    assert not broken.value.lost


async def test_a_sender_that_is_gone_is_told_apart() -> None:
    bus = MemoryBus()
    _, queue = await receiver(bus)
    await bus.publish(subjects.reply("edge_api-1", RID), encode_frame(data(0)))
    await queue.get()
    with pytest.raises(StreamBroken) as broken:
        await queue.get(stall_seconds=0.01)
    assert broken.value.lost
    assert broken.value.sender == SENDER


async def test_who_is_not_back_right_behind_a_restart_of_the_bus_is_not_gone() -> None:
    bus = MemoryBus(back_for_long=False)
    _, queue = await receiver(bus)
    queue.put(data(0))
    await queue.get()
    with pytest.raises(TimeoutError):  # it asks, nobody listens, it asks again
        async with asyncio.timeout(0.1):
            await queue.get(stall_seconds=0.01)

    outbox, stream = await sender(bus)
    bus.online = False
    await stream.send(data(0))
    await stream.send(end())
    bus.online = True
    assert (await queue.get(stall_seconds=0.01)).kind == "end"

    await outbox.stop()
    bus.back_for_long = True
    with pytest.raises(StreamBroken) as broken:
        await queue.get(stall_seconds=0.01)
    assert broken.value.lost


async def test_a_new_attempt_starts_its_own_numbers_and_late_frames_of_the_old_are_dropped() -> None:
    _, queue = await receiver(MemoryBus())
    second = [data(seq, attempt=2, sender="other") for seq in range(2)]
    for frame in (data(0), data(1), second[0], data(2), second[1]):
        queue.put(frame)
    got = [await queue.get() for _ in range(4)]
    assert [(frame.attempt, frame.seq) for frame in got] == [(1, 0), (1, 1), (2, 0), (2, 1)]


async def test_a_receiver_that_is_too_slow_is_cut_off() -> None:
    inbox, _ = await receiver(MemoryBus())
    queue = FrameQueue(MemoryBus(), RID, 2, lambda: None)
    for number in range(3):
        queue.put(data(number))
    with pytest.raises(QueueOverflow):
        await queue.get()
    assert inbox.num_open == 1


async def test_after_an_overflow_the_next_attempt_is_heard_and_so_is_what_has_no_number() -> None:
    queue = FrameQueue(MemoryBus(), RID, 2, lambda: None)
    told = Error(request_id=RID, sender="llm_gateway-1", error=ErrorBody(code="stop_lost", message="Gone."))
    for number in range(3):
        queue.put(data(number))
    queue.put(told)
    with pytest.raises(QueueOverflow):
        await queue.get()
    queue.put(data(0, sender="engine_worker-00000002", attempt=2))
    got = [await queue.get() for _ in range(2)]
    assert got == [told, data(0, sender="engine_worker-00000002", attempt=2)]


async def test_what_an_earlier_attempt_sent_too_much_of_is_nothing_to_the_next() -> None:
    queue = FrameQueue(MemoryBus(), RID, 2, lambda: None)
    told = Error(request_id=RID, sender="llm_gateway-1", error=ErrorBody(code="stop_lost", message="Gone."))
    queue.put(data(0))
    assert await queue.get() == data(0)
    for number in range(1, 4):
        queue.put(data(number))
    queue.put(told)
    queue.begin(2)
    for number in range(4, 8):  # it has not heard yet that nobody wants it
        queue.put(data(number))
    second = [data(seq, sender="engine_worker-00000002", attempt=2) for seq in range(2)]
    queue.put(second[0])
    assert await queue.get() == told
    queue.put(second[1])
    assert [await queue.get() for _ in range(2)] == second


async def test_who_waits_for_the_next_attempt_asks_the_one_before_nothing() -> None:
    """A frozen one does not answer, and the next one's first frames would wait for that."""
    bus = MemoryBus()
    _, queue = await receiver(bus)
    asked = list[BusMessage]()
    await bus.subscribe(subjects.resend_all(SENDER), asked.append)  # and never answers
    queue.put(data(0))
    assert await queue.get() == data(0)
    queue.begin(2)
    with pytest.raises(TimeoutError):
        await queue.get(0.01, by=asyncio.get_running_loop().time() + 0.05)
    assert asked == []


async def test_a_wait_ends_by_its_time_also_in_the_middle_of_a_repair() -> None:
    bus = MemoryBus()
    _, queue = await receiver(bus)
    asked = list[BusMessage]()
    await bus.subscribe(subjects.resend_all(SENDER), asked.append)  # and never answers
    queue.put(data(0))
    queue.put(data(2))
    loop = asyncio.get_running_loop()
    assert await queue.get(by=loop.time() + 5) == data(0)
    began = loop.time()
    with pytest.raises(TimeoutError):
        await queue.get(by=began + 0.05)
    assert len(asked) == 1
    assert loop.time() - began < 1
    with pytest.raises(TimeoutError):
        await queue.get(by=began)


async def test_a_queue_that_does_not_listen_is_not_filled() -> None:
    bus = MemoryBus()
    _, queue = await receiver(bus)
    _, stream = await sender(bus)
    heard = list[bytes]()
    await bus.subscribe(subjects.reply_all("edge_api-1"), lambda message: heard.append(message.payload))
    queue.is_listening = False
    await stream.send(data(0))
    await eventually(lambda: len(heard) == 1)
    assert len(queue) == 0
    queue.is_listening = True
    await stream.send(data(0))
    assert await texts(queue, 2) == ["0", "0"]  # the first one is asked for


async def test_a_closed_queue_leaves_nothing_behind() -> None:
    inbox, queue = await receiver(MemoryBus())
    with pytest.raises(KeyError):
        inbox.open(RID)
    queue.close()
    queue.close()
    assert inbox.num_open == 0


async def test_an_id_that_is_used_again_keeps_the_frames_of_its_own_time() -> None:
    """The ring of the first use is dropped once enough others have ended, that of the second is not."""
    bus = MemoryBus()
    outbox, first = await sender(bus)
    outbox.ended(first)
    again = outbox.open(first.subject, RID, 1)
    await again.send(data(0))
    for number in range(KEPT_STREAMS):
        outbox.ended(outbox.open(first.subject, f"{number:032x}", 1))
    ask = Resend(attempt=1, first_seq=0).encode()
    answer = Resent.decode(await bus.request(subjects.resend(SENDER, RID), ask, timeout=1))
    assert [frame.seq for frame in answer.frames] == [0]


async def test_a_frame_that_names_its_run_is_heard_by_that_run_as_any_other() -> None:
    queue = FrameQueue(MemoryBus(), RID, 10, lambda: None)
    queue.run_id = "0a1b2c3d"
    queue.hear(data(0).model_copy(update={"run_id": "11111111"}))
    queue.hear(data(0).model_copy(update={"run_id": "0a1b2c3d"}))
    queue.hear(data(1))
    assert [await queue.get() for _ in range(2)] == [data(0), data(1)]
    assert len(queue) == 0
