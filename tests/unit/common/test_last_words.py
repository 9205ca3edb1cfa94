"""The last word on a request is said again behind an outage, to those who may have missed it."""

from __future__ import annotations

import asyncio

import pytest

from baton_common import last_words
from baton_common.frame_inbox import FrameInbox
from baton_common.frame_sender import FrameOutbox
from baton_common.last_words import LastWords
from baton_common.memory_bus import MemoryBus
from baton_contracts import subjects
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Data, End, Error, Usage, decode_frame
from tests.support.relay import HandClock, eventually

RID, RUN = "c" * 32, "0a1b2c3d"
SENDER, WAY = "output_guardrails-1", subjects.reply("edge_api-1", "c" * 32)


class Rig:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(last_words, "SETTLE_SECONDS", 0.0)
        self.bus, self.clock = MemoryBus(), HandClock()
        self.words = LastWords(self.bus, self.clock.clock)
        self.heard: list[Error] = []

    async def listen(self) -> None:
        await self.bus.subscribe(WAY, lambda message: self.heard.append(decode_frame(message.payload)))  # type: ignore[arg-type]

    def note(self, text: str) -> None:
        error = Error(request_id=RID, sender=SENDER, error=ErrorBody(code="stop_lost", message=text))
        self.words.note(WAY, error, RUN)

    def outage(self) -> None:
        self.bus.online = False
        self.bus.online = True


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch)


async def test_behind_an_outage_it_is_said_at_once_and_when_all_are_back(rig: Rig) -> None:
    await rig.listen()
    rig.note("said into a dying bus")
    rig.outage()
    await eventually(lambda: len(rig.heard) == 2)
    assert [(word.run_id, word.error.message) for word in rig.heard] == [(RUN, "said into a dying bus")] * 2


async def test_who_subscribes_late_hears_the_second_one(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, later = asyncio.get_running_loop(), list[object]()
    rig.note("nobody was back yet")
    monkeypatch.setattr(loop, "call_later", lambda seconds, call: later.append(call))
    rig.outage()
    await asyncio.sleep(0)
    await rig.listen()
    assert rig.heard == []
    (say_again,) = later
    say_again()  # type: ignore[operator]
    await eventually(lambda: len(rig.heard) == 1)


async def test_what_was_said_long_before_has_arrived(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_words, "KEPT_SECONDS", 0.01)
    await rig.listen()
    rig.note("old")
    rig.clock.move(1)
    rig.note("new")
    await eventually(lambda: rig.words.num_kept == 1)
    rig.outage()
    await eventually(lambda: len(rig.heard) == 2)
    assert {word.error.message for word in rig.heard} == {"new"}
    rig.clock.move(1)
    await eventually(lambda: rig.words.num_kept == 0)  # though nothing is said any more


async def test_while_the_bus_is_away_nothing_is_forgotten(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_words, "KEPT_SECONDS", 0.0)
    looks, watch = list[int](), rig.words._watch
    monkeypatch.setattr(rig.words, "_watch", lambda: (looks.append(rig.words.num_kept), watch()))
    await rig.listen()
    rig.note("before")
    rig.bus.online = False
    rig.clock.move(60)
    rig.note("meanwhile")
    await eventually(lambda: looks[-2:] == [2, 2])
    rig.bus.back_for_long = False  # nor while it is only just back
    rig.bus.online = True
    await eventually(lambda: len(rig.heard) == 4)


async def test_an_answer_of_which_nothing_arrived_is_had_after_all(rig: Rig) -> None:
    """All its frames were sent into the outage: its receiver, who knows no sender, hears the last one and
    asks for the rest. The same words to a later run of that id are not for it."""
    inbox = FrameInbox(rig.bus, subjects.reply_all("edge_api-1"))
    outbox = FrameOutbox(rig.bus, SENDER, None, rig.words)
    await inbox.start()
    await outbox.start()
    queue = inbox.open(RID)
    queue.run_id = RUN
    stream = outbox.open(WAY, RID, 1, RUN)
    rig.bus.online = False
    for text in ("one ", "two"):
        await stream.send(Data(request_id=RID, sender=SENDER, seq=0, text=text))
    await stream.send(End(request_id=RID, sender=SENDER, seq=0, finish_reason="stop", usage=Usage()))
    outbox.ended(stream)
    rig.bus.online = True
    got = [await queue.get() for _ in range(3)]
    assert [frame.text for frame in got if isinstance(frame, Data)] == ["one ", "two"]
    assert isinstance(got[-1], End)
    assert got[-1].run_id is None
    queue.close()
    later = inbox.open(RID)
    later.run_id = "11111111"
    rig.outage()
    listened = list[bytes]()
    await rig.bus.subscribe(WAY, lambda message: listened.append(message.payload))
    await eventually(lambda: len(listened) >= 1)
    assert len(later) == 0
