"""What servers answer, in the relay's words: what came together is one piece, and nothing of it is lost."""

from __future__ import annotations

from typing import Any

import pytest

from baton_contracts.frames import Usage
from baton_llm_gateway.providers import answer_reader, piece
from baton_llm_gateway.providers.answer_reader import AnswerReader, NoAnswer, ProviderError


def chunk(index: int = 0, reason: str | None = None, logprobs: Any = None, **delta: Any) -> dict[str, Any]:
    choice = {"index": index, "delta": delta, "finish_reason": reason, "logprobs": logprobs}
    return {"choices": [choice]}


def call(index: int | None = 0, call_id: str | None = None, name: str | None = None, text: str = "") -> Any:
    function = {"arguments": text} | ({"name": name} if name else {})
    made: dict[str, Any] = {"function": function}
    return made | ({"index": index} if index is not None else {}) | ({"id": call_id} if call_id else {})


def test_text_that_came_together_is_one_piece() -> None:
    reader = AnswerReader(1)
    for word in ("a", "b", "c"):
        reader.take(chunk(content=word))
    assert [piece.texts for piece in reader.pieces()] == [["a", "b", "c"]]
    assert reader.pieces() == []
    assert reader.num_tokens == 3


def test_thinking_behind_text_begins_a_new_piece_and_before_it_does_not() -> None:
    reader = AnswerReader(1)
    for delta in ({"reasoning": "hm"}, {"content": "a"}, {"reasoning_content": "more"}, {"content": "b"}):
        reader.take(chunk(**delta))
    assert [(piece.reasoning, piece.texts) for piece in reader.pieces()] == [
        (["hm"], ["a"]),
        (["more"], ["b"]),
    ]


def test_answers_are_told_apart_and_those_nobody_asked_for_are_dropped() -> None:
    reader = AnswerReader(2)
    for index in (0, 1, 0, 2, 1):
        reader.take(chunk(index, content=str(index)))
    assert [(piece.index, piece.texts) for piece in reader.pieces()] == [(0, ["0", "0"]), (1, ["1", "1"])]
    reader.take(chunk(1, reason="stop"))
    assert reader.reasons is None
    reader.take(chunk(0, reason="max_tokens"))
    assert reader.reasons == ("length", "stop")


def test_calls_are_whole_once_the_next_one_or_the_end_comes() -> None:
    reader = AnswerReader(1)
    reader.take(chunk(tool_calls=[call(0, "c1", "look", '{"a"')]))
    reader.take(chunk(tool_calls=[call(0, text=":1}")]))
    (first,) = reader.pieces()
    assert [(c.index, c.name, c.arguments, c.is_whole) for c in first.calls.values()] == [
        (0, "look", '{"a":1}', None)
    ]
    reader.take(chunk(tool_calls=[call(1, "c2", "go", "{}")]))
    reader.take(chunk(reason="tool_calls"))
    (rest,) = reader.pieces()
    assert [(c.index, c.call_id, c.is_whole) for c in rest.calls.values()] == [
        (0, None, True),
        (1, "c2", True),
    ]


def test_servers_that_number_no_calls_and_give_no_ids() -> None:
    reader = AnswerReader(1)
    reader.take(chunk(tool_calls=[call(None, "x", "one", "{}"), call(None, "y", "two", "{}")]))
    names = [c.name for piece in reader.pieces() for c in piece.calls.values() if c.name]
    assert names == ["one", "two"]
    reader = AnswerReader(1)
    reader.take(chunk(tool_calls=[call(0, None, "one")]))
    (piece,) = reader.pieces()
    assert (piece.calls[0].call_id or "").startswith("call_")


def test_usage_wherever_it_stands_and_whatever_else_is_there() -> None:
    reader = AnswerReader(1)
    details = {"prompt_tokens_details": {"cached_tokens": 3}, "completion_tokens_details": None}
    reader.take({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2} | details})
    reader.take({"choices": [], "usage": None})
    assert reader.usage == Usage(prompt_tokens=5, completion_tokens=2, cached_tokens=3)


def test_logprobs_count_the_tokens() -> None:
    entry = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": [{"token": "b", "logprob": -1}]}
    reader = AnswerReader(1)
    reader.take(chunk(content="ab", logprobs={"content": [entry, entry]}))
    (piece,) = reader.pieces()
    assert (reader.num_tokens, piece.logprobs[0].logprob, piece.logprobs[0].top[0].text) == (2, -0.5, "b")


def test_a_whole_answer() -> None:
    reader = AnswerReader(1)
    message = {"content": [{"type": "text", "text": "Hi"}], "tool_calls": [call(0, "c", "look", "{}")]}
    reader.take_whole({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})
    (piece,) = reader.pieces()
    assert (piece.texts, piece.calls[0].is_whole, reader.reasons) == (["Hi"], True, ("tool_calls",))


@pytest.mark.parametrize("bad", ["text", 7, None, []])
def test_what_is_no_answer(bad: Any) -> None:
    with pytest.raises(NoAnswer):
        AnswerReader(1).take(bad)
    with pytest.raises(NoAnswer):
        AnswerReader(1).take_whole(bad)
    with pytest.raises(NoAnswer):
        AnswerReader(1).take_whole({"choices": []})


def test_an_error_in_the_stream() -> None:
    with pytest.raises(ProviderError, match="overloaded"):
        AnswerReader(1).take({"error": {"message": "overloaded"}})
    with pytest.raises(ProviderError, match="down"):
        AnswerReader(1).take({"error": "down"})


def test_an_answer_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_reader, "MAX_ANSWER_CHARACTERS", 100)
    reader = AnswerReader(1)
    reader.take(chunk(content="x" * 40, reasoning="y" * 40))
    for _ in range(8):  # with those before 9 tokens, and 8 characters more
        reader.take(chunk(tool_calls=[call(0, "c", "look", "z")]))
        reader.pieces()
    with pytest.raises(NoAnswer, match="over 100 characters"):
        reader.take(chunk(content="xyz"))


def test_counts_are_none_that_the_books_can_not_hold() -> None:
    reader = AnswerReader(1)
    reader.take({"choices": [], "usage": {"prompt_tokens": 10**12, "completion_tokens": -4}})
    assert reader.usage == Usage(prompt_tokens=2**31 - 1)


def test_a_long_whole_answer_is_cut_and_nothing_of_it_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piece, "MOST_CHARACTERS", 10)
    monkeypatch.setattr(piece, "MOST_RATED", 2)
    entries = [{"token": str(number), "logprob": -number} for number in range(5)]
    message = {
        "content": "0123456789ab",
        "reasoning": "thinking about it",
        "tool_calls": [call(0, "c", "look", '{"where": "everywhere, always"}')],
    }
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls", "logprobs": {"content": entries}}
    reader = AnswerReader(1)
    reader.take_whole({"choices": [choice]})
    (whole,) = reader.pieces()
    parts = list(whole.in_parts())
    assert [part.reasoning for part in parts[:2]] == [["thinking a"], ["bout it"]]
    assert [part.texts for part in parts[2:4]] == [["0123456789"], ["ab"]]
    calls = [part.calls[0] for part in parts[4:8]]
    assert [(one.call_id, one.name, one.is_whole) for one in calls] == [
        ("c", "look", None),
        (None, None, None),
        (None, None, None),
        (None, None, True),
    ]
    assert "".join(one.arguments for one in calls) == '{"where": "everywhere, always"}'
    assert [[token.text for token in part.logprobs] for part in parts[8:]] == [["0", "1"], ["2", "3"], ["4"]]


def test_a_frame_holds_so_much_of_all_kinds_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piece, "MOST_CHARACTERS", 300)
    reader = AnswerReader(1)
    called = [call(0, "c", "look", "z" * 40)]  # with 256 of its name and id, at most
    reader.take(chunk(content="x" * 4, reasoning="y", tool_calls=called))
    reader.take(chunk(content="x" * 300))
    reader.take(chunk(content="x" * 300, reasoning="y"))
    over, *within = reader.pieces()
    assert len(list(over.in_parts())) == 3
    assert [[(part.reasoning, part.texts) for part in one.in_parts()] for one in within] == [
        [([], ["x" * 300])],
        [(["y"], []), ([], ["x" * 300])],
    ]


def test_a_token_is_no_longer_than_tokens_are() -> None:
    entry = {"token": "x" * 10_000, "logprob": 0, "top_logprobs": [{"token": "b", "logprob": -1}] * 1000}
    reader = AnswerReader(1)
    reader.take(chunk(content="x", logprobs={"content": [entry]}))
    (piece,) = reader.pieces()
    assert len(piece.logprobs[0].encode()) < 8000
