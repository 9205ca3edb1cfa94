from __future__ import annotations

import asyncio

import pytest

from baton_common.frame_inbox import FrameInbox
from baton_common.memory_bus import MemoryBus
from baton_contracts import subjects
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Cancel, Data, End, Error, Prologue, Usage, encode_frame
from baton_llm_gateway.attempt import Attempt
from baton_llm_gateway.cancellation import Cancellation
from baton_llm_gateway.listening import CANCELLED, Listener, replica_lost

RID = "0123456789abcdef0123456789abcdef"
US = "llm_gateway-1"
REPLICA = "engine_worker-1"


class Ear:
    """A listener with its queue, and a pen for the frames it hears."""

    def __init__(self, stall_seconds: float = 5.0) -> None:
        self.bus = MemoryBus()
        self.inbox = FrameInbox(self.bus, subjects.frames_of_gateway(US))
        self.cancellation = Cancellation()
        self.listener = Listener(
            self.inbox.open(RID),
            self.cancellation,
            request_id=RID,
            ourselves=US,
            stall_seconds=stall_seconds,
        )
        self.cancellation.wake = lambda: self.listener.note(CANCELLED)
        self.attempt = Attempt(1, "m", 0.0, replica=REPLICA)

    async def hears(self, *frames: Prologue | Data | End | Error) -> None:
        await self.inbox.start()
        for frame in frames:
            await self.bus.publish(subjects.frames(US, "guard", RID), encode_frame(frame))

    async def until_over(self, seconds: float = 20.0) -> Attempt:
        async with asyncio.timeout(seconds):
            await self.listener.until_over(self.attempt)
        return self.attempt


def prologue() -> Prologue:
    return Prologue(request_id=RID, sender=REPLICA, seq=0, model="m", replica=REPLICA, gateway=US, guard="g")


def data(seq: int, text: str = "a", sender: str = REPLICA, attempt: int = 1) -> Data:
    return Data(request_id=RID, sender=sender, seq=seq, text=text, token_ids=(seq,), attempt=attempt)


def end(seq: int, reason: str = "stop") -> End:
    usage = Usage(prompt_tokens=3, completion_tokens=2)
    return End(request_id=RID, sender=REPLICA, seq=seq, finish_reason=reason, usage=usage)


async def test_an_answer_with_its_ids_and_usage() -> None:
    ear = Ear()
    await ear.hears(prologue(), data(1, "a"), data(2, "b"), end(3))
    over = await ear.until_over()
    assert (over.outcome, over.text, over.token_ids) == ("finished", "ab", {0: [1, 2]})
    assert over.usage == Usage(prompt_tokens=3, completion_tokens=2)


async def test_words_of_an_attempt_that_was_given_up_are_not_heard() -> None:
    ear = Ear()
    ear.attempt.number = 2
    late = Error(request_id=RID, sender="engine_worker-0", attempt=1, error=replica_lost("x"), final=False)
    await ear.hears(data(0, "old", "engine_worker-0"), late)
    await ear.hears(*(frame.model_copy(update={"attempt": 2}) for frame in (prologue(), data(1), end(2))))
    assert (await ear.until_over()).text == "a"


async def test_an_engines_error_is_no_last_word_but_the_end_of_the_attempt() -> None:
    ear = Ear()
    body = ErrorBody(code="stop_failed", message="nan", stop="engine_worker")
    usage = Usage(prompt_tokens=3)
    await ear.hears(Error(request_id=RID, sender=REPLICA, seq=0, error=body, final=False, usage=usage))
    over = await ear.until_over()
    assert (over.outcome, over.error, over.usage, over.confirmed) == ("error", body, usage, False)


async def test_a_lost_replica_concerns_its_own_attempt_only() -> None:
    ear = Ear()
    ear.attempt.number = 2
    ear.listener.note(replica_lost("engine_worker-0"), attempt=1)
    ear.listener.note(replica_lost(REPLICA), attempt=2)
    over = await ear.until_over()
    assert over.error == replica_lost(REPLICA)


async def test_a_stall_after_the_first_token_is_a_failure() -> None:
    ear = Ear(stall_seconds=0.01)
    await ear.hears(prologue(), data(1))
    over = await ear.until_over()
    assert over.error is not None
    assert (over.error.code, over.error.stop) == ("upstream_error", "engine_worker")
    assert over.token_ids == {0: [1]}


async def test_silence_before_the_first_token_is_only_waiting() -> None:
    ear = Ear(stall_seconds=0.01)
    await ear.hears(prologue())
    listening = asyncio.create_task(ear.until_over())
    await asyncio.wait({listening}, timeout=0.05)
    assert not listening.done()
    await ear.hears(data(1), end(2))
    assert (await listening).outcome == "finished"


async def test_a_cancel_waits_for_the_engines_last_word() -> None:
    ear = Ear()
    await ear.hears(prologue(), data(1))
    listening = asyncio.create_task(ear.until_over())
    await ear.cancellation.note(Cancel(request_id=RID, reason="client_disconnected"))
    await asyncio.wait({listening}, timeout=0.02)
    assert not listening.done()
    await ear.hears(end(2, "cancelled"))
    over = await listening
    assert (over.outcome, over.confirmed) == ("cancelled", True)
    assert over.usage == Usage(prompt_tokens=3, completion_tokens=2)


async def test_a_cancel_of_one_attempt_is_not_a_cancel_of_the_request() -> None:
    cancellation = Cancellation()
    await cancellation.note(Cancel(request_id=RID, reason="superseded", attempt=1))
    assert not cancellation.is_set
    await cancellation.note(Cancel(request_id=RID, reason="deadline"))
    await cancellation.note(Cancel(request_id=RID, reason="operator"))
    assert cancellation.cancel is not None
    assert cancellation.cancel.reason == "deadline"
    assert await cancellation.within(0.0)


async def test_who_began_an_attempt_is_known_before_anybody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baton_llm_gateway.listening.BEGINS_SECONDS", 0.05)
    ear = Ear()
    ear.attempt = Attempt(2, "m", 0.0)
    ear.listener.note(CANCELLED, attempt=2)
    await ear.hears(data(3, sender="engine_worker-0", attempt=1))
    await asyncio.sleep(0)  # delivered
    assert await ear.listener.begun_by(ear.attempt) is None

    of_second = {"attempt": 2}
    await ear.hears(prologue().model_copy(update=of_second), end(1).model_copy(update=of_second))
    await asyncio.sleep(0)  # delivered
    assert await ear.listener.begun_by(ear.attempt) == REPLICA
    ear.attempt.replica = REPLICA
    assert (await ear.until_over()).outcome == "finished"


async def test_who_began_an_attempt_of_which_nobody_knows_is_found_though_its_frames_come_later() -> None:
    ear = Ear()
    found = asyncio.create_task(ear.listener.begun_by(ear.attempt))
    await asyncio.sleep(0)
    ear.listener.note(CANCELLED)
    await ear.hears(prologue(), data(1), end(2))
    assert await found == REPLICA
    assert (await ear.until_over()).outcome == "finished"
