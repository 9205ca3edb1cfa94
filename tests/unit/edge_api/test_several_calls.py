"""Several requests on the relay that are one answer: order, ends, failures, and nothing left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from baton_common.errors import RequestFailed
from baton_contracts.envelope import Envelope, Tenant
from baton_contracts.frames import CACHED, SHARED, Data, End, FinishReason, Prologue, Usage
from baton_contracts.identifiers import parse_request_id, request_id_of
from baton_contracts.prompt import ChatRequest, Message, Part, Sampling
from baton_edge_api.relay_call import CancelOutcome
from baton_edge_api.several_calls import MAX_UNDER_WAY, SeveralCalls

RID = "0af7651916cd43dd8448eb211c80319c"
ENVELOPE = Envelope(
    request_id=RID,
    run_id="0a1b2c3d",
    tenant=Tenant(tenant_id="acme", team="core", key_id="dev"),
    edge="edge_api-1",
    conversation_id="talk",
    deadline=2_000_000_000.0,
    sent_at=1_700_000_000.0,
)


class ScriptedCall:
    """What a test says of one request."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.frames: asyncio.Queue[Any] = asyncio.Queue()
        self.over = False
        self.was_handed_on = False
        self.cancelled: list[str] = []
        self.closed = False
        self.last: End | None = end(2)
        """What comes after a cancel."""

    async def hand_on(self, chat: ChatRequest, max_bytes: int) -> str:
        self.was_handed_on = True
        return "prompt_builder-1"

    async def _take(self) -> Any:
        frame = await self.frames.get()
        if isinstance(frame, Exception):
            self.over = True
            raise frame
        self.over = isinstance(frame, End)
        return frame

    begin = next = _take

    async def cancel(self, reason: str) -> CancelOutcome:
        self.cancelled.append(reason)
        return CancelOutcome(1, 3)

    async def last_frame(self, seconds: float) -> End | None:
        return self.last

    def close(self) -> None:
        self.closed = True

    def say(self, *frames: Any) -> None:
        for frame in frames:
            self.frames.put_nowait(frame)


class Seats:
    def __init__(self) -> None:
        self.taken: set[str] = set()

    @contextmanager
    def seat(self, request_id: str) -> Generator[Any, None, None]:
        self.taken.add(request_id)
        try:
            yield None
        finally:
            self.taken.discard(request_id)


class Bench:
    def __init__(self, num_prompts: int, n: int = 1) -> None:
        self.seats = Seats()
        self.calls: list[ScriptedCall] = []
        chats = [
            ChatRequest(
                model="m",
                messages=(Message(role="user", parts=(Part(text=str(place)),)),),
                sampling=Sampling(n=n),
            )
            for place in range(num_prompts)
        ]
        self.chat = chats[0]
        self.several = SeveralCalls(cast(Any, self.seats), self._call, cast(Any, None), ENVELOPE, chats)

    def _call(self, queue: Any, envelope: Envelope) -> Any:
        self.calls.append(ScriptedCall(envelope.request_id))
        return self.calls[-1]

    async def begun(self) -> None:
        await self.several.hand_on(self.chat, 1000)
        for call in self.calls:
            call.say(prologue())
        await self.several.begin()

    async def rest(self) -> list[Data | End]:
        found: list[Data | End] = []
        async with asyncio.timeout(20):
            while not found or isinstance(found[-1], Data):
                found.append(await self.several.next())
        return found


def prologue() -> Prologue:
    return Prologue(request_id=RID, sender="x", seq=0, model="m", replica="r", gateway="g", guard="o")


def data(text: str, index: int = 0, **more: Any) -> Data:
    return Data(request_id=RID, sender="x", seq=0, index=index, text=text, **more)


def end(tokens: int, *reasons: FinishReason) -> End:
    given = reasons or ("stop",)
    usage = Usage(prompt_tokens=10, completion_tokens=tokens, cached_tokens=1)
    several = given if len(given) > 1 else ()
    return End(
        request_id=RID,
        sender="x",
        seq=0,
        finish_reason=given[0],
        finish_reasons=several,
        usage=usage,
        blocks_freed=2,
    )


def test_each_has_an_id_of_its_own_and_the_first_that_of_the_http_request() -> None:
    ids = [request_id_of(RID, place) for place in range(128)]
    assert ids[0] == RID
    assert len(set(ids)) == 128
    assert all(parse_request_id(each) == each for each in ids)
    assert ids == [request_id_of(RID, place) for place in range(128)]


async def test_answers_are_told_apart_and_end_as_one() -> None:
    bench = Bench(2, n=2)
    await bench.begun()
    assert bench.several.prologue is not None
    assert bench.several.prologue.num_answers == 4
    bench.calls[1].say(data("d", 1, finish_reason="length"), data("c"), end(4, "stop", "length"))
    told = [await bench.several.next() for _ in range(3)]
    assert [(one.index, one.text, one.finish_reason) for one in told if isinstance(one, Data)] == [
        (3, "d", "length"),
        (2, "c", None),
        (2, "", "stop"),
    ]
    bench.calls[0].say(data("a"), end(3, "length", "stop"))
    *_, last = await bench.rest()
    assert isinstance(last, End)
    assert last.reasons == ("length", "stop", "stop", "length")
    usage = last.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (20, 7, 2)
    assert last.blocks_freed == 4
    assert bench.several.over
    bench.several.close()
    assert bench.seats.taken == set()
    assert all(call.closed for call in bench.calls)


async def test_few_are_under_way_at_a_time_and_all_have_their_turn() -> None:
    bench = Bench(MAX_UNDER_WAY + 3)
    await bench.begun()
    assert [call.was_handed_on for call in bench.calls] == [True] * MAX_UNDER_WAY + [False] * 3
    assert len(bench.seats.taken) == MAX_UNDER_WAY + 2
    for call in bench.calls:
        call.say(end(1))
    *_, last = await bench.rest()
    assert isinstance(last, End)
    assert last.usage.completion_tokens == MAX_UNDER_WAY + 3
    assert all(call.was_handed_on for call in bench.calls)
    bench.several.close()


async def test_a_refusal_before_the_beginning_is_that_of_all() -> None:
    bench = Bench(3)
    await bench.several.hand_on(bench.chat, 1000)
    bench.calls[0].say(prologue())
    bench.calls[2].say(RequestFailed.because("context_length_exceeded", "too long"))
    with pytest.raises(RequestFailed) as failed:
        await bench.several.begin()
    assert failed.value.error.code == "context_length_exceeded"
    assert not bench.several.over
    outcome = await bench.several.cancel("lease_lost")
    assert [call.cancelled for call in bench.calls] == [["lease_lost"], ["lease_lost"], []]
    assert (outcome.num_acks, outcome.blocks_freed) == (2, 6)
    bench.several.close()
    assert bench.seats.taken == set()


async def test_a_failure_on_the_way_ends_all_and_those_that_had_no_turn_are_never_asked() -> None:
    bench = Bench(MAX_UNDER_WAY + 1)
    await bench.begun()
    bench.calls[3].say(data("x"), RequestFailed.because("stop_failed", "broken"))
    with pytest.raises(RequestFailed):
        await bench.rest()
    await bench.several.cancel("client_disconnected")
    assert not bench.calls[-1].was_handed_on
    assert bench.calls[-1].cancelled == []
    last = await bench.several.last_frame(0.1)
    assert last is not None
    assert last.finish_reason == "cancelled"
    assert last.usage.completion_tokens == 2 * MAX_UNDER_WAY
    bench.several.close()


@pytest.mark.parametrize(
    "free",
    [
        {"cache": "exact", "replica": CACHED},
        {"cache": "semantic", "cache_similarity": 0.97, "replica": CACHED},
        {"replica": SHARED},
    ],
)
async def test_money_is_for_what_was_computed_for_this_answer(free: dict[str, Any]) -> None:
    bench = Bench(3)
    await bench.several.hand_on(bench.chat, 1000)
    for call, fields in zip(bench.calls, (free, {}, {}), strict=True):
        call.say(prologue().model_copy(update=fields), end(2))
    told = await bench.several.begin()
    assert (told.cache, told.cache_similarity, told.replica) == ("none", None, "r")
    last = (await bench.rest())[-1]
    assert isinstance(last, End)
    used, charged = last.usage, bench.several.charged(last.usage)
    assert 3 * charged.completion_tokens == 2 * used.completion_tokens > 0
    assert 3 * charged.prompt_tokens == 2 * used.prompt_tokens > 0


async def test_what_the_cache_gave_as_a_whole_costs_nothing() -> None:
    bench = Bench(2)
    await bench.several.hand_on(bench.chat, 1000)
    for call in bench.calls:
        call.say(prologue().model_copy(update={"cache": "exact", "replica": CACHED}), end(2))
    assert (await bench.several.begin()).cache == "exact"
    await bench.rest()
    assert bench.several.charged(Usage(prompt_tokens=4, completion_tokens=4)) == Usage()


async def test_cancelled_midway_what_was_heard_of_the_silent_ones_counts_too() -> None:
    bench = Bench(4)
    await bench.several.hand_on(bench.chat, 1000)
    first, silent, late, unheard = bench.calls
    first.say(prologue(), end(5))
    silent.say(prologue(), data("a", token_ids=(1,)), data("b", token_ids=(2, 3)))
    late.say(prologue())
    unheard.say(
        prologue().model_copy(update={"cache": "exact", "replica": CACHED}), data("c", token_ids=(4,))
    )
    await bench.several.begin()
    heard = [await bench.several.next() for _ in range(4)]  # the first one's end and three pieces
    assert sum(len(frame.token_ids) for frame in heard if isinstance(frame, Data)) == 4
    await bench.several.cancel("client_disconnected")
    silent.last = unheard.last = None
    last = await bench.several.last_frame(0.1)
    assert last is not None
    assert (last.usage.completion_tokens, last.usage.prompt_tokens) == (5 + 3 + 2 + 1, 20)
    assert bench.several.uncounted == 0.5, "two prompts of four"
    assert bench.several.charged(last.usage).completion_tokens == 5 + 3 + 2, "a cache costs nothing"
    bench.several.close()


async def test_the_prompt_of_one_whose_end_is_not_heard_counts_as_its_beginning_told_it() -> None:
    bench = Bench(2)
    await bench.several.hand_on(bench.chat, 1000)
    first, silent = bench.calls
    first.say(prologue(), end(5))
    silent.say(prologue().model_copy(update={"prompt_tokens": 7}), data("a", token_ids=(1,)))
    await bench.several.begin()
    for _ in range(2):  # the first one's end and a piece
        await bench.several.next()
    await bench.several.cancel("client_disconnected")
    silent.last = None
    last = await bench.several.last_frame(0.1)
    assert last is not None
    assert (last.usage.completion_tokens, last.usage.prompt_tokens) == (5 + 1, 10 + 7)
    assert bench.several.uncounted == 0.0
    bench.several.close()


async def test_pieces_without_token_ids_count_as_one_each() -> None:
    bench = Bench(2)
    await bench.several.hand_on(bench.chat, 1000)
    ended, silent = bench.calls
    ended.say(prologue(), end(5))
    silent.say(prologue(), data("a"), data("b"))
    await bench.several.begin()
    for _ in range(3):  # an end and two pieces
        await bench.several.next()
    await bench.several.cancel("client_disconnected")
    silent.last = None
    last = await bench.several.last_frame(0.1)
    assert last is not None
    assert last.usage.completion_tokens == 5 + 2
    bench.several.close()


async def test_one_that_ends_unheard_after_a_cancel_is_charged() -> None:
    """Its beginning was on the way when the client left."""
    bench = Bench(2)
    await bench.several.hand_on(bench.chat, 1000)
    bench.calls[0].say(prologue(), data("a"))
    await bench.several.next()
    await bench.several.cancel("client_disconnected")
    last = await bench.several.last_frame(0.1)
    assert last is not None
    assert bench.several.charged(last.usage).completion_tokens == 2 * 2
    bench.several.close()
