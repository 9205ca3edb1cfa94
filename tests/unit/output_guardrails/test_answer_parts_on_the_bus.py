"""Thinking, tool calls, logprobs and several answers through the output guardrails, as the edge gets them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from baton_contracts import subjects
from baton_contracts.frames import Data, End, TokenLogprob, ToolCallPiece
from baton_contracts.handoffs import Ack, GuardOutHandoff
from tests.support.guard_bench import USAGE, Answer, Bench, guard_bench
from tests.support.relay import make_envelope


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with guard_bench(output_guard_cancel_seconds=0.05, output_guard_takeover_seconds=0.05) as running:
        yield running


async def passed(
    bench: Bench,
    *frames: dict[str, Any],
    num_answers: int = 1,
    reasons: tuple[str, ...] = ("stop",),
    values: Mapping[str, str] | None = None,
    citations: tuple[str, ...] = (),
) -> tuple[list[Data], End]:
    answer = await bench.open(values)
    return await said(answer, *frames, num_answers=num_answers, reasons=reasons, citations=citations)


async def said(
    answer: Answer,
    *frames: dict[str, Any],
    num_answers: int = 1,
    reasons: tuple[str, ...] = ("stop",),
    citations: tuple[str, ...] = (),
) -> tuple[list[Data], End]:
    stream = answer.attempt()
    await stream.send(answer.prologue(num_answers=num_answers, citations=citations))
    for fields in frames:
        await stream.send(answer.data("").model_copy(update=fields))
    end = answer.end(reasons[0])
    await stream.send(end.model_copy(update={"finish_reasons": reasons} if len(reasons) > 1 else {}))
    _, *data, last = await answer.received()
    assert isinstance(last, End)
    return [frame for frame in data if isinstance(frame, Data)], last


def rated(text: str) -> tuple[TokenLogprob, ...]:
    return (TokenLogprob(text=text, token_bytes=tuple(text.encode()), logprob=-1),)


async def test_every_part_of_a_frame_arrives(bench: Bench) -> None:
    call = ToolCallPiece(index=0, call_id="call_1", name="add", arguments='{"a": 1}', is_whole=True)
    fields = {
        "reasoning": "hm",
        "text": "so",
        "tool_calls": (call,),
        "logprobs": rated("so"),
        "token_ids": (1,),
    }
    [frame], end = await passed(bench, fields, reasons=("tool_calls",))
    assert (frame.reasoning, frame.text, frame.tool_calls, frame.logprobs) == (
        "hm",
        "so",
        (call,),
        rated("so"),
    )
    assert frame.token_ids == ()
    assert (end.finish_reason, end.usage) == ("tool_calls", USAGE)


async def test_the_answers_of_a_request_are_filtered_each_on_its_own(bench: Bench) -> None:
    data, end = await passed(
        bench,
        {"index": 0, "text": "a secret"},
        {"index": 1, "text": " plan b"},
        {"index": 1, "text": " to <CITY"},
        {"index": 0, "text": "s, _1>"},
        {"index": 1, "text": "_1>."},
        num_answers=2,
        reasons=("stop", "length"),
        values={"<CITY_1>": "Oslo"},
    )
    texts = ["".join(frame.text for frame in data if frame.index == index) for index in (0, 1)]
    assert texts == ["a secrets, _1>", " plan b to Oslo."]
    assert end.reasons == ("stop", "length")


async def test_a_banned_answer_ends_alone_and_the_others_go_on(bench: Bench) -> None:
    data, end = await passed(
        bench,
        {"index": 0, "text": "the secret plan is"},
        {"index": 1, "text": "fine"},
        {"index": 0, "text": " more", "logprobs": rated(" more")},
        num_answers=2,
        reasons=("stop", "stop"),
    )
    texts = ["".join(frame.text for frame in data if frame.index == index) for index in (0, 1)]
    assert texts == ["the ", "fine"]
    assert [(frame.index, frame.finish_reason) for frame in data if frame.finish_reason] == [
        (0, "content_filter")
    ]
    assert end.reasons == ("content_filter", "stop")
    assert not any(frame.logprobs for frame in data)
    assert bench.cancels == []


async def test_an_answer_that_ends_before_the_others_is_told_with_what_was_held_back_of_it(
    bench: Bench,
) -> None:
    data, end = await passed(
        bench,
        {"index": 1, "text": "a secret", "finish_reason": "length"},
        {"index": 0, "text": "goes on"},
        num_answers=2,
        reasons=("stop", "length"),
    )
    first, ended, *others = data
    assert (first.index, first.text, first.finish_reason) == (1, "a ", None)
    assert (ended.index, ended.text, ended.finish_reason) == (1, "secret", "length")
    assert {(frame.index, frame.finish_reason) for frame in others} == {(0, None)}
    assert end.reasons == ("stop", "length")


async def test_what_is_banned_in_the_last_words_of_an_answer_that_ends_early(bench: Bench) -> None:
    data, end = await passed(
        bench,
        {"index": 0, "text": "the secret plan", "finish_reason": "stop"},
        {"index": 1, "text": "fine"},
        num_answers=2,
        reasons=("stop", "stop"),
    )
    assert [frame.finish_reason for frame in data if frame.index == 0][-1] == "content_filter"
    assert end.reasons == ("content_filter", "stop")


async def test_the_end_of_the_last_answer_is_left_to_the_end_of_all(bench: Bench) -> None:
    """The engine may think that another one goes on, which was banned here."""
    data, _ = await passed(
        bench,
        {"index": 0, "text": "the secret plan is"},
        {"index": 1, "text": "fine", "finish_reason": "stop"},
        num_answers=2,
        reasons=("stop", "stop"),
    )
    assert [frame.index for frame in data if frame.finish_reason] == [0]


async def test_when_all_answers_are_banned_the_engine_is_stopped(bench: Bench) -> None:
    await passed(
        bench,
        {"index": 0, "text": "secret plan."},
        {"index": 1, "reasoning": "secret plan."},
        num_answers=2,
        reasons=("stop", "stop"),
    )
    assert [cancel.reason for cancel in bench.cancels] == ["content_filter"]


async def test_what_is_held_back_of_each_part_comes_before_the_end(bench: Bench) -> None:
    call = ToolCallPiece(index=0, call_id="c", name="add", arguments='{"a": "secret')
    data, _ = await passed(
        bench,
        {"text": "a secret", "reasoning": "hm, secret", "tool_calls": (call,), "logprobs": rated("x")},
    )
    last = data[-1]
    assert (last.text, last.reasoning, last.logprobs) == ("secret", "secret", rated("x"))
    assert last.tool_calls == (ToolCallPiece(index=0, arguments="secret"),)


async def test_an_answer_of_calls_and_one_in_a_given_form_get_no_source_line(bench: Bench) -> None:
    data, _ = await passed(bench, {"text": "x"}, reasons=("tool_calls",), citations=("a.md",))
    assert "".join(frame.text for frame in data) == "x"

    envelope = make_envelope(edge="edge_api-1")
    rid = envelope.request_id
    queue = bench.edge.open(rid)
    handoff = GuardOutHandoff(envelope=envelope, gateway=bench.gateway.instance, name_sources=False)
    ack = Ack.decode(await bench.bus.request(subjects.guard_out(rid), handoff.encode(), timeout=5))
    data, _ = await said(Answer(bench, rid, queue, ack), {"text": "{}"}, citations=("a.md",))
    assert "".join(frame.text for frame in data) == "{}"
