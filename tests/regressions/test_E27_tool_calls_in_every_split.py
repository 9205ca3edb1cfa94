"""E27 (vllm#55082, vllm#57490): however the text of tool calls is split, the same calls come out of it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton_engine import ToolCallFormat
from tests.support.tool_call_reading import Answer, Call, read

ARGUMENTS = '{"city": "Zür\\"ich\\n", "days": [1, 2.5e3, {"deep": null}], "ok": true}'
TEXTS: list[tuple[ToolCallFormat, str]] = [
    (
        "hermes",
        f'I look. \n<tool_call>\n{{"name": "weather", "arguments": {ARGUMENTS}}}\n</tool_call>\n'
        f'<tool_call>{{"arguments": {ARGUMENTS}, "name": "add"}}</tool_call> so.',
    ),
    (
        "hermes",
        f'```json\n[{{"name": "weather", "arguments": {ARGUMENTS}}},\n{{"name": "add"}}]\n``` <tool_call> x',
    ),
    ("hermes", f'<tool_call>{{"name": "weather", "arguments": {ARGUMENTS[:-9]},,}}}}</tool_call>'),
    (
        "llama3_json",
        f'{{"name": "weather", "parameters": {ARGUMENTS}}}; {{"name": "add", "parameters": {{}}}}',
    ),
    (
        "pythonic",
        "[weather(city='Zür\\'ich\\n', days=[1, 2.5e3, {'deep': None}], ok=True), add(x=\"\\x41\")] end",
    ),
    ("pythonic", "[weather(city='x', days=[1, 'a', oops])]"),
]


@pytest.mark.parametrize(("written_as", "text"), TEXTS)
def test_every_cut_in_two_and_character_by_character(written_as: ToolCallFormat, text: str) -> None:
    expected = read(written_as, text)
    assert expected.calls
    assert read(written_as, list(text)) == expected
    for cut in range(len(text)):
        assert read(written_as, [text[:cut], text[cut:]]) == expected


def test_the_calls_are_those_that_were_written() -> None:
    answer = read(*TEXTS[0])
    assert answer.calls == [Call("weather", ARGUMENTS, True), Call("add", ARGUMENTS, True)]
    assert answer.content == "I look. \n\n so."


FRAGMENTS = [
    *(
        "<tool_call>",
        "</tool_call>",
        "```json",
        "```",
        "<tools>",
        "<|python_tag|>",
        "weather(",
        "add",
        "x=",
        ")",
    ),
    *("{", "}", "[", "]", '"', "'", "\\", ",", ":", "\n", " ", "null", "-1", "0", "é😀", "word", '{"a": 1}'),
    *('{"name": "weather"', '"arguments": ', '"parameters": ', ARGUMENTS),
    f'<tool_call>{{"name": "add", "arguments": {ARGUMENTS}}}</tool_call>',
]


@given(
    st.sampled_from(["hermes", "llama3_json", "pythonic"]),
    st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join),
    st.lists(st.integers(0, 200), max_size=6),
)
def test_hostile_text_in_random_splits(written_as: ToolCallFormat, text: str, cuts: list[int]) -> None:
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(places)]
    whole = read(written_as, text)
    assert read(written_as, pieces) == whole
    _check(whole, text)


def _check(answer: Answer, text: str) -> None:
    """What comes out was in the text; without calls it is all of the text."""
    if not answer.calls:
        assert answer.content == text
    for call in answer.calls:
        assert call.name in text
