"""Several tokens of one step come in one delta: nothing that one of them said is lost."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from baton_engine import (
    OutputFormat,
    RequestDelta,
    RequestFailure,
    SamplingParams,
    StructuredOutput,
    Timings,
    TokenLogprobs,
    ToolCallDelta,
    Usage,
)
from baton_engine.deltas import one_for_each_answer
from tests.support.drafters import guess_with, knowing
from tests.support.engine_driver import GREEDY, add, ask, drain, text, token_ids
from tests.support.tiny_model import tiny_engine

FIRST = RequestDelta(
    "a",
    "te",
    (1, 2),
    logprobs=(TokenLogprobs(1, -0.5), TokenLogprobs(2, -0.25)),
    prompt_logprobs=(None, TokenLogprobs(9, -1.0)),
    reasoning="why",
    tool_calls=(ToolCallDelta(0, "call_0", "look", "{"),),
)
LAST = RequestDelta(
    "a",
    "xt",
    (3,),
    logprobs=(TokenLogprobs(3, -2.0),),
    finish_reason="stop",
    stop_reason="x",
    error=RequestFailure("code", "message"),
    usage=Usage(1, 0, 3),
    blocks_freed=4,
    timings=Timings(1.0, 1.0, 1.0, 2.0),
    num_left=2,
    reasoning=" so",
    tool_calls=(ToolCallDelta(0, arguments="}"),),
)


def test_every_field_of_both() -> None:
    [both] = one_for_each_answer([FIRST, LAST])
    for field in fields(RequestDelta):
        ours = [getattr(one, field.name) for one in (FIRST, LAST)]
        if field.name in ("text", "token_ids", "logprobs", "reasoning", "tool_calls"):
            assert getattr(both, field.name) == ours[0] + ours[1], field.name
        elif field.name == "prompt_logprobs":
            assert both.prompt_logprobs == FIRST.prompt_logprobs
        else:
            assert getattr(both, field.name) == ours[1], field.name


def test_answers_and_requests_are_kept_apart() -> None:
    deltas = [FIRST, replace(FIRST, index=1), replace(FIRST, request_id="b"), LAST]
    assert [(one.request_id, one.index, one.text) for one in one_for_each_answer(deltas)] == [
        ("a", 1, "te"),
        ("b", 0, "te"),
        ("a", 0, "text"),
    ]


def test_thinking_and_answer_are_told_apart_inside_a_guess() -> None:
    said = b"<think>hm</think>yes"
    engine = tiny_engine()
    guess_with(engine, knowing({"a.0": list(said)}))
    forced = replace(GREEDY, max_tokens=len(said), structured=StructuredOutput(choice=(said.decode(),)))
    add(engine, ask("a", [1, 2, 3], forced, output_format=OutputFormat(reasoning=True)))
    deltas = drain(engine)["a"]
    assert len(deltas) < len(said) / 2
    assert token_ids(deltas)[: len(said)] == list(said)
    assert "".join(delta.reasoning for delta in deltas).strip() == "hm"
    assert text(deltas) == "yes"


@pytest.mark.parametrize("wrong_every", [0, 2, 5])
def test_a_structure_holds_inside_guesses(wrong_every: int) -> None:
    """The mask of each token follows from the tokens before it, those that were guessed too."""
    asked = SamplingParams(
        temperature=1.5, seed=3, max_tokens=24, structured=StructuredOutput(regex="(ab|cd)+[0-9]{3}")
    )
    plain = tiny_engine()
    add(plain, ask("a", [5], asked))
    expected = drain(plain)["a"]
    engine = tiny_engine()
    speculation = guess_with(engine, knowing({"a.0": token_ids(expected)}, wrong_every))
    add(engine, ask("a", [5], asked))
    found = drain(engine)["a"]
    assert (token_ids(found), text(found), found[-1].finish_reason) == (
        token_ids(expected),
        text(expected),
        expected[-1].finish_reason,
    )
    assert speculation.stats().num_accepted_tokens > 0
