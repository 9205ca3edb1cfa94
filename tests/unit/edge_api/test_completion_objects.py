"""Bytes of completions: text, offsets, the four lists of logprobs, ids, and which answers are given."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types import Completion as OpenAICompletion

from baton_contracts.frames import Data, PromptPiece, SpelledToken, TokenLogprob, Usage
from baton_contracts.openai_completions import Completion, CompletionChunk
from baton_edge_api.answer_objects import AnswerParts
from baton_edge_api.best_of import best_of
from baton_edge_api.completion_objects import CompletionChunks, CompletionForm, whole_completion

RID = "0af7651916cd43dd8448eb211c80319c"
USAGE = Usage(prompt_tokens=2, completion_tokens=2)


def data(text: str = "", **more: Any) -> Data:
    return Data(request_id=RID, sender="x", seq=0, text=text, **more)


def rated(text: str | bytes, logprob: float, *top: tuple[str, float]) -> TokenLogprob:
    raw = text.encode() if isinstance(text, str) else text
    likely = tuple(rated(other, value) for other, value in top)
    return TokenLogprob(
        text=raw.decode(errors="replace"),
        token_bytes=tuple(raw),
        logprob=logprob,
        top=likely,
        token_id=len(raw),
    )


def spelled(*texts: str) -> tuple[SpelledToken, ...]:
    return tuple(SpelledToken(token_id=len(text), token_bytes=tuple(text.encode())) for text in texts)


def events(*written: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for event in b"".join(written).split(b"\n\n")[:-1]:
        CompletionChunk.model_validate_json(event[6:])
        found.append(json.loads(event[6:]))
    return found


def chunks(include_usage: bool = False, **form: Any) -> CompletionChunks:
    return CompletionChunks(RID, "m", 1_700_000_000, CompletionForm(**form), include_usage=include_usage)


PROMPT = PromptPiece(
    start=0, tokens=spelled("<s>", "Say", " it"), logprobs=(None, rated("Say", -1.0), rated(" it", -2.0))
)


def test_bytes_of_a_stream() -> None:
    writer = chunks(include_usage=True)
    assert writer.data(data("Hi")) == (
        b'data: {"id":"cmpl-0af7651916cd43dd8448eb211c80319c","object":"text_completion",'
        b'"created":1700000000,"model":"m","system_fingerprint":"baton-1","choices":[{"index":0,"text":"Hi","logprobs":null,'
        b'"finish_reason":null}],"usage":null}\n\n'
    )
    [last] = events(writer.finish(["length"]))
    assert last["choices"] == [{"index": 0, "text": "", "logprobs": None, "finish_reason": "length"}]
    [usage] = events(writer.usage(USAGE))
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 4)


def test_an_answer_that_ends_before_others_ends_once() -> None:
    writer = chunks(num_answers=2, num_written=2)
    told = events(writer.data(data("a", index=1, finish_reason="stop")), writer.finish(["length", "stop"]))
    assert [(one["choices"][0]["index"], one["choices"][0]["finish_reason"]) for one in told] == [
        (1, None),
        (1, "stop"),
        (0, "length"),
    ]


def test_the_echo_goes_first_and_once_in_each_answer() -> None:
    writer = chunks(prompts=("One", "Two"), num_answers=2, num_written=2, echo=True)
    told = events(
        writer.data(data("a", index=3)),
        writer.data(data("b", index=3)),
        writer.data(data("c", index=0)),
        writer.finish(["stop"] * 4),
    )
    texts: dict[int, str] = {}
    for event in told:
        [choice] = event["choices"]
        texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    assert texts == {3: "Twoab", 0: "Onec", 1: "One", 2: "Two"}


def test_offsets_are_places_in_the_text_and_a_bos_takes_none() -> None:
    writer = chunks(prompts=("Say it",), echo=True, logprobs=1)
    assert writer.data(data(prompt=PROMPT)) == b""
    first, second = events(
        writer.data(data("!", logprobs=(rated("!", -0.5, ("?", -0.25)),))),
        writer.data(data(" né", logprobs=(rated(" n", -1.0), rated(b"\xc3", -1.0), rated(b"\xa9", -1.0)))),
    )
    told = first["choices"][0]["logprobs"]
    assert first["choices"][0]["text"] == "Say it!"
    assert told["tokens"] == ["<s>", "Say", " it", "!"]
    assert told["text_offset"] == [0, 0, 3, 6]
    assert told["token_logprobs"] == [None, -1.0, -2.0, -0.5]
    assert told["top_logprobs"] == [None, {"Say": -1.0}, {" it": -2.0}, {"?": -0.25, "!": -0.5}]
    told = second["choices"][0]["logprobs"]
    assert told["tokens"] == [" n", "bytes:\\xc3", "bytes:\\xa9"]
    assert told["text_offset"] == [7, 9, 9]


def test_ids_of_the_prompt_come_once_with_each_answer() -> None:
    writer = chunks(num_answers=2, num_written=2, token_ids=True)
    writer.data(data(prompt=PROMPT))
    told = events(
        writer.data(data("a", tokens=spelled("a"))), writer.data(data("bc", index=1, tokens=spelled("bc")))
    )
    assert [one["choices"][0]["prompt_token_ids"] for one in told] == [[3, 3, 3]] * 2
    assert [one["choices"][0]["token_ids"] for one in told] == [[1], [2]]
    [later] = events(writer.data(data("d", tokens=spelled("d"))))
    assert "prompt_token_ids" not in later["choices"][0]


def parts(text: str, *logprobs: float, prompt: PromptPiece | None = None) -> AnswerParts:
    found = AnswerParts()
    tokens = tuple(rated(letter, value) for letter, value in zip(text, logprobs, strict=False))
    found.add(data(text, logprobs=tokens or None, tokens=spelled(*text), prompt=prompt))
    return found


def whole(answers: list[AnswerParts], chosen: list[int] | None = None, **form: Any) -> dict[str, Any]:
    places = list(range(len(answers))) if chosen is None else chosen
    body = whole_completion(
        RID, "m", 1, answers, ["stop"] * len(answers), USAGE, places, CompletionForm(**form)
    )
    Completion.model_validate_json(body)
    return json.loads(body)


def test_a_whole_completion_is_valid_in_openais_strict_schema() -> None:
    answer = whole([parts("ab", -1.0, -2.0)], logprobs=0)
    OpenAICompletion.model_validate_json(json.dumps(answer), strict=True)
    [choice] = answer["choices"]
    assert choice["text"] == "ab"
    assert choice["logprobs"] == {
        "tokens": ["a", "b"],
        "token_logprobs": [-1.0, -2.0],
        "top_logprobs": None,
        "text_offset": [0, 1],
    }
    assert "token_ids" not in choice


def test_all_that_can_be_told_of_tokens() -> None:
    answers = [parts("ab", -1.0, -2.0, prompt=PROMPT), parts("c", -3.0)]
    answer = whole(
        answers,
        prompts=("Say it",),
        num_answers=2,
        num_written=2,
        echo=True,
        logprobs=0,
        token_ids=True,
        prompt_logprobs=True,
        tokens_as_ids=True,
    )
    first, second = answer["choices"]
    assert (first["text"], second["text"]) == ("Say itab", "Say itc")
    assert first["logprobs"]["tokens"] == ["token_id:3"] * 3 + ["token_id:1"] * 2
    assert second["logprobs"]["text_offset"] == [0, 0, 3, 6]
    assert (first["token_ids"], second["token_ids"]) == ([1, 1], [1])
    assert second["prompt_token_ids"] == [3, 3, 3]
    assert first["prompt_logprobs"] == [
        None,
        {"3": {"logprob": -1.0, "rank": None, "decoded_token": "Say"}},
        {"3": {"logprob": -2.0, "rank": None, "decoded_token": " it"}},
    ]


def test_the_prompt_alone() -> None:
    answer = whole(
        [parts("a", -1.0, prompt=PROMPT)], prompts=("Say it",), echo=True, logprobs=0, only_prompt=True
    )
    [choice] = answer["choices"]
    assert choice["text"] == "Say it"
    assert choice["logprobs"]["tokens"] == ["<s>", "Say", " it"]


@pytest.mark.parametrize(
    ("num_written", "num_kept", "chosen"),
    [(2, 2, [0, 1, 2, 3]), (2, 1, [1, 2]), (4, 2, [2, 1]), (4, 3, [2, 1, 0])],
)
def test_the_likeliest_of_each_prompt_are_given(num_written: int, num_kept: int, chosen: list[int]) -> None:
    answers = [parts("aa", -1.0, -3.0), parts("a", -1.5), parts("aa", -0.5, -0.5), parts("")]
    assert best_of(answers, num_written, num_kept) == chosen
