from __future__ import annotations

import ast
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tool_call_reading import Answer, Call, read


def test_two_calls() -> None:
    answer = read("pythonic", '[weather(city="Paris", days=2), add()]\n')
    assert answer.calls == [
        Call("weather", '{"city": "Paris", "days": 2}', is_whole=True),
        Call("add", "{}", is_whole=True),
    ]
    assert answer.content == ""


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("'it\\'s \"so\"'", 'it\'s "so"'),
        ('"\\x41\\u00e9\\101\\n\\d\\\\"', "AéA\n\\d\\"),
        ('"\\U0001F600\\ud83d\\ude00"', "😀😀"),
        ("'a\nb'", "a\nb"),
        ("[1, -2.5, .5, 1_000, 0x10, 1e3,]", [1, -2.5, 0.5, 1000, 16, 1000.0]),
        ("{'a': {\"b\": [None, True, False, true, null]}, }", {"a": {"b": [None, True, False, True, None]}}),
        ("[]", []),
        ("{}", {}),
    ],
)
def test_python_values_become_json(literal: str, value: Any) -> None:
    [call] = read("pythonic", f"[weather(x={literal}, y = 1 )]").calls
    assert call.is_whole
    assert json.loads(call.arguments) == {"x": value, "y": 1}


@pytest.mark.parametrize(
    "text",
    [
        "Sunny.",
        "[1, 2]",
        "[link](http://example.org)",
        "[weather]",
        "[missiles(x=1)]",
        "[weather('Paris')]",
        "[weather(1=2)]",
        "weather(city='Paris')",
        "[",
        " [weather(",
        "[weather(city",
    ],
)
def test_anything_else_is_content(text: str) -> None:
    assert read("pythonic", text) == Answer(content=text, order=["content"])


@pytest.mark.parametrize(
    ("rest", "arguments", "content"),
    [
        ("foo)]", "", "foo)]"),
        ("'\\xZZ')]", '"', "\\xZZ')]"),
        ("(1, 2))]", "", "(1, 2))]"),
        ("1j)]", "", "1j)]"),
        ("1e999)]", "", "1e999)]"),
        ("1, 2)]", "1", ", 2)]"),
        ("1, x=2)]", "1", ", x=2)]"),
        ("1", "", "1"),
        ("'Par", '"Par', ""),
    ],
)
def test_a_call_that_breaks_off_stays_cut_and_nothing_is_lost(
    rest: str, arguments: str, content: str
) -> None:
    answer = read("pythonic", f"[weather(x={rest}")
    assert answer.calls == [Call("weather", '{"x": ' + arguments, is_whole=False)]
    assert answer.content == content


_LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(_VALUES)
def test_whatever_python_writes_is_read_as_the_same_value(value: Any) -> None:
    literal = repr(value)
    assert ast.literal_eval(literal) == value
    [call] = read("pythonic", f"[add(x={literal})]").calls
    assert call.is_whole
    assert json.loads(call.arguments) == {"x": value}
