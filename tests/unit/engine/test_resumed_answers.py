"""An answer that breaks off after any of its tokens and goes on in another engine: the two halves say what
an undisturbed run says, in text, thinking, calls, logprobs, ids and end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from baton_engine import (
    EngineRequest,
    InvalidParameter,
    OutputFormat,
    RequestDelta,
    SamplingParams,
    StructuredOutput,
)
from baton_engine.assembly import LoadedEngine
from baton_engine.text.answer_reader import AnswerPart
from tests.support.engine_driver import GREEDY, add, ask, drain, edit_logits, token_ids
from tests.support.tiny_model import tiny_engine
from tests.unit.engine.test_answer_parts import CALL, says

PARTS = OutputFormat(reasoning=True, tool_calls="hermes", tool_names=frozenset({"f"}))
SCHEMA = StructuredOutput(
    json_schema={
        "type": "object",
        "properties": {"a": {"type": "integer", "maximum": 99}},
        "required": ["a"],
        "additionalProperties": False,
    }
)
SPOKEN = replace(GREEDY, max_tokens=120, ignore_eos=False, seed=3)
DRAWN = SamplingParams(max_tokens=24, temperature=1.0, seed=5, ignore_eos=True)

CASES: dict[str, tuple[str | None, SamplingParams, OutputFormat | None]] = {
    "greedy": (None, GREEDY, None),
    "drawn by a seed": (None, DRAWN, None),
    "penalties": (
        None,
        replace(DRAWN, repetition_penalty=1.4, frequency_penalty=0.6, presence_penalty=0.4),
        None,
    ),
    "min tokens and a bias": (
        None,
        replace(DRAWN, ignore_eos=False, min_tokens=9, logit_bias={257: 6.0}),
        None,
    ),
    "bad words": (None, replace(DRAWN, allowed_token_ids=[97, 98, 99], bad_words=["ab", "ca"]), None),
    "logprobs": (None, replace(DRAWN, logprobs=2), None),
    "a stop string": ("One two three, four.", replace(SPOKEN, stop=("three,",)), None),
    "a stop string that does not come": ("So thr, thre, th", replace(SPOKEN, stop=("three",)), None),
    "characters of four bytes": ("a 🙂 b 🏳️‍🌈 ж", SPOKEN, None),
    "half a character at the end": (None, replace(SPOKEN, max_tokens=3, ignore_eos=True), None),
    "thinking and calls": (f"<think>Hm.</think>Look: {CALL} and {CALL}", SPOKEN, PARTS),
    "one call only": (f"Look: {CALL} and {CALL}", SPOKEN, replace(PARTS, one_call=True)),
    "a call that is cut": (f"Look: {CALL}", replace(SPOKEN, max_tokens=44), PARTS),
    "a schema": (None, replace(DRAWN, ignore_eos=False, structured=SCHEMA), None),
}


def said(deltas: Sequence[RequestDelta]) -> AnswerPart:
    whole = AnswerPart()
    for delta in deltas:
        whole = whole.then(AnswerPart(delta.text, delta.reasoning, delta.tool_calls))
    return whole


def rated(deltas: Sequence[RequestDelta]) -> list[Any]:
    """Which tokens were rated and what came on top, with the logprobs themselves: a prompt read in other
    chunks adds up in another order."""
    entries = [entry for delta in deltas for entry in delta.logprobs]
    return [
        (entry.token_id, pytest.approx(entry.logprob, abs=1e-4), [token_id for token_id, _ in entry.top])
        for entry in entries
    ]


def engine_for(words: str | None) -> LoadedEngine:
    engine = tiny_engine()
    if words is not None:
        edit_logits(engine, says(words))
    return engine


def run(engine: LoadedEngine, asked: EngineRequest) -> list[RequestDelta]:
    add(engine, asked)
    deltas = drain(engine)[asked.request_id]
    assert engine.core.stats().kv_blocks_held == 0
    assert engine.core.stats().waiting == 0
    return deltas


@pytest.mark.parametrize("case", CASES)
def test_cut_after_every_token(case: str) -> None:
    words, sampling, parts = CASES[case]
    asked = replace(ask("a", [70, 71], sampling), output_format=parts or OutputFormat())
    engine = engine_for(words)
    if case == "half a character at the end":
        edit_logits(engine, lambda requests, logits: logits.__setitem__((slice(None), 0xF0), 1e4))
    whole = run(engine, asked)
    ids, last = token_ids(whole), whole[-1]
    assert len(ids) > 2
    for cut in range(1, len(whole) + 1):
        before, sent = whole[:cut], token_ids(whole[:cut])
        rest = run(engine, replace(asked, resume_token_ids=sent))
        assert sent + token_ids(rest) == ids, cut
        assert said([*before, *rest]) == said(whole), cut
        assert rated([*before, *rest]) == rated(whole), cut
        assert (rest[-1].finish_reason, rest[-1].error) == (last.finish_reason, None)
        assert rest[-1].usage is not None
        assert last.usage is not None
        assert rest[-1].usage.completion_tokens == len(ids) - len(sent)
        assert rest[-1].usage.reasoning_tokens == last.usage.reasoning_tokens


def test_the_cases_come_to_the_ends_that_they_are_about() -> None:
    """Known beforehand, so that the equality above compares something."""
    text = dict.fromkeys(CASES, "")
    ends: dict[str, Any] = {}
    for name in ("a stop string", "characters of four bytes", "one call only", "a call that is cut"):
        words, sampling, parts = CASES[name]
        asked = replace(ask("a", [70, 71], sampling), output_format=parts or OutputFormat())
        deltas = run(engine_for(words), asked)
        text[name], ends[name] = said(deltas).text, deltas[-1].finish_reason
    assert text["a stop string"] == "One two "
    assert text["characters of four bytes"] == "a 🙂 b 🏳️‍🌈 ж"
    assert ends == {
        "a stop string": "stop",
        "characters of four bytes": "stop",
        "one call only": "tool_calls",
        "a call that is cut": "length",
    }


Cut = Callable[[int], int]


@pytest.mark.parametrize(
    "cut_at",
    [lambda index: 5, lambda index: 3 + 4 * index, lambda index: 24 - 8 * index, lambda index: 24],
    ids=["together", "apart", "the first has ended", "all have ended"],
)
def test_several_answers_go_on_each_at_its_place(cut_at: Cut) -> None:
    asked = ask("a", [70, 71], replace(DRAWN, n=3))
    engine = tiny_engine()
    whole = by_index(run(engine, asked))
    sent = [whole[index][: min(24, cut_at(index))] for index in range(3)]
    rest = run(engine, replace(asked, resume_token_ids=sent[0], resume_others=sent[1:]))
    found = by_index(rest)
    assert [[*sent[index], *found.get(index, [])] for index in range(3)] == list(whole.values())
    assert [delta.ends_request for delta in rest] == [False] * (len(rest) - 1) + [True]
    assert len([delta for delta in rest if delta.finish_reason == "length"]) == 3


def by_index(deltas: Sequence[RequestDelta]) -> dict[int, list[int]]:
    return {
        index: [token for one in deltas if one.index == index for token in one.token_ids]
        for index in sorted({one.index for one in deltas})
    }


def test_more_resumed_answers_than_were_asked_for_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="continues 2 further answers, but n is 2"):
        add(tiny_engine(), ask("a", [1], replace(DRAWN, n=2), resume_others=[[5], [6]]))
