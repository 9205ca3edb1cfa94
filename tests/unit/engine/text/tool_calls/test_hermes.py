from __future__ import annotations

import json

import pytest

from baton_engine.text.tool_calls import CallArguments, CallStart, ContentText, tool_call_parser
from tests.support.tool_call_reading import Answer, Call, read

WEATHER = '{"name": "weather", "arguments": {"city": "Paris"}}'


def hermes(text: str) -> Answer:
    return read("hermes", text)


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>\n{WEATHER}\n</tool_call>",
        f"<tool_call>{WEATHER}</tool_call>\n",
        f"```json\n{WEATHER}\n```",
        f"```\n{WEATHER}```",
        f"<tools>\n{WEATHER}\n</tools>",
        WEATHER,
        f"\n {WEATHER}",
        f"<tool_call>\n{WEATHER}",
        f"<tool_call>\n{WEATHER}\n</tool_c",
    ],
)
def test_one_call_in_every_dress(text: str) -> None:
    answer = hermes(text)
    assert answer.calls == [Call("weather", '{"city": "Paris"}', is_whole=True)]
    assert answer.content.strip() in ("", "</tool_c")


@pytest.mark.parametrize(
    "text",
    [
        f'<tool_call>{WEATHER}</tool_call>\n<tool_call>{{"name": "add", "arguments": {{}}}}</tool_call>',
        f'```json\n[{WEATHER}, {{"name": "add", "arguments": {{}}}}]\n```',
        f'<tool_call>{WEATHER}\n{{"name": "add", "arguments": {{}}}}</tool_call>',
        f'```json\n{WEATHER}\n```\n```json\n{{"name": "add", "arguments": {{}}}}\n```',
        f'{WEATHER}\n{{"name": "add", "arguments": {{}}}}',
    ],
)
def test_two_calls(text: str) -> None:
    answer = hermes(text)
    assert answer.calls == [Call("weather", '{"city": "Paris"}', True), Call("add", "{}", True)]
    assert (answer.content, answer.order) == ("", [0, 1])


def test_text_before_between_and_behind_calls_keeps_its_order_and_its_white_space() -> None:
    answer = hermes(
        f"First.\n\n<tool_call>{WEATHER}</tool_call>\nThen: <tool_call>{WEATHER}</tool_call> \nDone\n"
    )
    assert answer.order == ["content", 0, "content", 1, "content"]
    assert answer.content == "First.\n\n\nThen:  \nDone"


def test_white_space_around_calls_alone_is_no_content() -> None:
    assert hermes(f"\n\n<tool_call>{WEATHER}</tool_call>\n\n").content == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n",
        "  Just an answer, with <tools and ``` in it.\n",
        "```python\nprint({'name': 'weather'})\n```",
        '```json\n{"name": "Alice", "arguments": 3}\n```\n',
        '{"city": "Paris"} is what you asked for',
        "<tool_call>weather(Paris)</tool_call>",
        '<tool_call>{"name": weather}</tool_call>',
        '<tool_call>{"name": "weather", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "weather", "arguments": "no object"}</tool_call>',
        '<tool_call>{"arguments": {}}</tool_call>',
        '<tool_call>{"name": "", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "weather", "name": "add"}</tool_call>',
        '<tool_call>{"name": "\\ud800", "arguments": {}}</tool_call>',
        f'<tool_call>{{"name": "{"x" * 129}"}}</tool_call>',
        '<tool_call>{"name": "weather"',
        "<tool_call>",
        "<tool_ca",
        '<tool_call>{"deep": ' + "[" * 100,
        '```json\n{"users": [{"name": "weather"}]}\n```',
    ],
)
def test_what_is_no_call_is_content_to_the_last_character(text: str) -> None:
    assert hermes(text) == Answer(content=text, order=["content"] if text else [])


def test_a_call_behind_a_malformed_one_is_found() -> None:
    answer = hermes(f"<tool_call>oops <tool_call>{WEATHER}</tool_call>")
    assert answer.content == "<tool_call>oops"
    assert [call.name for call in answer.calls] == ["weather"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"a": [1, -2.5e+3, true, null, {"b": ""}]}', '{"a": [1, -2.5e+3, true, null, {"b": ""}]}'),
        ('{"a": "line\nbreak\tand tab"}', '{"a": "line\\nbreak\\tand tab"}'),
        ('"{\\"a\\": 1}"', '{"a": 1}'),
        ("null", "{}"),
        (
            '{"é": "\\u00e9\\ud83d\\ude00 </tool_call> \\\\ \\" }"}',
            '{"é": "\\u00e9\\ud83d\\ude00 </tool_call> \\\\ \\" }"}',
        ),
        ("{ }", "{ }"),
    ],
)
def test_arguments_are_json_at_the_end(arguments: str, expected: str) -> None:
    for text in (
        f'{{"name": "weather", "arguments": {arguments}}}',
        f'{{"arguments": {arguments}, "name": "weather"}}',
    ):
        [call] = hermes(f"<tool_call>{text}</tool_call>").calls
        assert call == Call("weather", expected, is_whole=True)
        json.loads(call.arguments)


def test_a_call_without_arguments_and_with_more_members() -> None:
    answer = hermes('<tool_call>{"type": "function", "name": "add", "id": [1]}</tool_call>')
    assert answer.calls == [Call("add", "{}", is_whole=True)]


def test_a_marked_call_may_name_any_function_an_unmarked_one_may_not() -> None:
    other = WEATHER.replace("weather", "missiles")
    assert [call.name for call in hermes(f"<tool_call>{other}</tool_call>").calls] == ["missiles"]
    assert hermes(f"```json\n{other}\n```").calls == []
    assert [call.name for call in read("hermes", other, known=None).calls] == ["missiles"]


@pytest.mark.parametrize(
    ("text", "arguments", "content"),
    [
        ('{"a": 1,, "b": 2}}</tool_call>', '{"a": 1,', ', "b": 2}}</tool_call>'),
        ('{"a": nul}}</tool_call>', '{"a": nul', "}}</tool_call>"),
        ('{"a": 01}}', '{"a": 01', "}}"),
        ('{"a": "x', '{"a": "x', ""),
    ],
)
def test_a_call_that_breaks_off_stays_cut_and_the_rest_is_content(
    text: str, arguments: str, content: str
) -> None:
    answer = hermes('<tool_call>{"name": "weather", "arguments": ' + text)
    assert answer.calls == [Call("weather", arguments, is_whole=False)]
    assert answer.content == content


def test_arguments_that_are_whole_stay_so_whatever_follows() -> None:
    answer = hermes('<tool_call>{"name": "weather", "arguments": {"a": 1} and more')
    assert answer.calls == [Call("weather", '{"a": 1}', is_whole=True)]
    assert answer.content == "and more"


def test_everything_is_given_as_soon_as_it_is_certain() -> None:
    parser = tool_call_parser("hermes", None, lambda index: f"id{index}")
    assert parser.push("Look <") == [ContentText("Look")]
    assert parser.push("b>") == [ContentText(" <b>")]
    assert parser.push('<tool_call>{"name": "weather", "arguments": ') == []
    assert parser.push('{"city": "Pa') == [CallStart(0, "id0", "weather"), CallArguments(0, '{"city": "Pa')]
    assert parser.push("ri") == [CallArguments(0, "ri")]
