from __future__ import annotations

import pytest

from tests.support.tool_call_reading import Answer, Call, read

WEATHER = '{"name": "weather", "parameters": {"city": "Paris"}}'


@pytest.mark.parametrize("text", [WEATHER, f"\n{WEATHER}", f"<|python_tag|>{WEATHER}"])
def test_one_call(text: str) -> None:
    answer = read("llama3_json", text)
    assert (answer.content, answer.calls) == ("", [Call("weather", '{"city": "Paris"}', is_whole=True)])


def test_several_calls_joined_by_semicolons() -> None:
    answer = read("llama3_json", f'{WEATHER}; {{"name": "add", "parameters": {{"a": 1}}}}')
    assert [(call.name, call.is_whole) for call in answer.calls] == [("weather", True), ("add", True)]
    assert answer.content == ""


@pytest.mark.parametrize(
    "text",
    [
        "Paris is nice.",
        '{"name": "Alice", "parameters": {}}',
        '{"answer": 42}',
        f"It is {WEATHER}",
        "<|python_tag|>print(1)",
        f"<tool_call>{WEATHER}</tool_call>",
    ],
)
def test_anything_else_is_content(text: str) -> None:
    assert read("llama3_json", text) == Answer(content=text, order=["content"])
