"""Answers that must be tool calls: what the structure takes, and that the parsers read it back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from baton_engine import InvalidParameter, OutputFormat, StructuredOutput
from baton_engine.structured.compiler import GrammarCompiler
from baton_engine.structured.tool_calls import calls_in_text, constraint
from baton_engine.text.answer_reader import AnswerReader
from tests.support.structures import byte_grammars, takes

ADD: dict[str, Any] = {
    "name": "add",
    "parameters": {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/n"}, "b": {"type": "integer"}, "by": {"enum": ["hand", None]}},
        "required": ["a", "b"],
        "$defs": {"n": {"type": "integer"}},
    },
}
NOW: dict[str, Any] = {"name": "now"}
FORMATS: Any = ("hermes", "llama3_json", "pythonic")

HERMES = '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>'
LLAMA = '{"name": "%s", "parameters": %s}'

GOOD: list[tuple[Any, str, list[tuple[str, Any]]]] = [
    ("hermes", HERMES % ("add", '{"a": 1, "b": -2}'), [("add", {"a": 1, "b": -2})]),
    ("hermes", HERMES % ("now", "{}"), [("now", {})]),
    (
        "hermes",
        HERMES % ("add", '{"a":1,"b":2,"by":null}') + "\n" + HERMES % ("now", "{}"),
        [("add", {"a": 1, "b": 2, "by": None}), ("now", {})],
    ),
    ("llama3_json", LLAMA % ("add", '{"a": 1, "b": 2}'), [("add", {"a": 1, "b": 2})]),
    ("llama3_json", LLAMA % ("now", "{}") + "; " + LLAMA % ("now", "{}"), [("now", {}), ("now", {})]),
    ("pythonic", "[add(a=1, b=2)]", [("add", {"a": 1, "b": 2})]),
    (
        "pythonic",
        '[add(a=1, b=2, by="hand"), now()]',
        [("add", {"a": 1, "b": 2, "by": "hand"}), ("now", {})],
    ),
]
BAD: list[tuple[Any, str]] = [
    ("hermes", "Hello"),
    ("hermes", HERMES % ("add", "{}")),
    ("hermes", HERMES % ("add", '{"a": "1", "b": 2}')),
    ("hermes", HERMES % ("add", '{"a": 1, "b": 2, "c": 3}')),
    ("hermes", HERMES % ("sub", "{}")),
    ("hermes", HERMES % ("now", "{}") + " And so on."),
    ("llama3_json", LLAMA % ("add", '{"b": 2}')),
    ("pythonic", "[add(b=2, a=1)]"),
    ("pythonic", "[add(a=1)]"),
    ("pythonic", "[add(a=1, b=2, )]"),
    ("pythonic", "[]"),
]


@pytest.fixture(scope="module")
def grammars() -> GrammarCompiler:
    return byte_grammars()


def takes_calls(grammars: GrammarCompiler, text: str, wanted: StructuredOutput) -> bool:
    return takes(grammars, text, tool_calls=wanted.text, after=wanted.after)


@pytest.mark.parametrize(("call_format", "text", "calls"), GOOD)
def test_calls_that_fit_are_taken_and_read_back(
    grammars: GrammarCompiler, call_format: Any, text: str, calls: list[tuple[str, Any]]
) -> None:
    assert takes_calls(grammars, text, constraint([ADD, NOW], None, call_format))
    reader = AnswerReader(OutputFormat(tool_calls=call_format, tool_names=frozenset({"add", "now"})), "seed")
    part = reader.push(text).then(reader.finish())
    assert [(call.name, json.loads(call.arguments)) for call in part.tool_calls] == calls
    assert (part.text, [call.is_whole for call in part.tool_calls]) == ("", [True] * len(calls))


@pytest.mark.parametrize(("call_format", "text"), BAD)
def test_anything_else_is_not(grammars: GrammarCompiler, call_format: Any, text: str) -> None:
    assert not takes_calls(grammars, text, constraint([ADD, NOW], None, call_format))


@pytest.mark.parametrize("call_format", FORMATS)
def test_a_named_function_is_the_only_one_and_without_parallel_there_is_one_call(
    grammars: GrammarCompiler, call_format: Any
) -> None:
    text = {"hermes": HERMES % ("now", "{}"), "llama3_json": LLAMA % ("now", "{}"), "pythonic": "[now()]"}
    two = {
        "hermes": f"{text['hermes']}\n{text['hermes']}",
        "llama3_json": f"{text['llama3_json']}; {text['llama3_json']}",
        "pythonic": "[now(), now()]",
    }
    now = constraint([ADD, NOW], "now", call_format)
    assert takes_calls(grammars, text[call_format], now)
    assert takes_calls(grammars, two[call_format], now)
    assert not takes_calls(grammars, text[call_format], constraint([ADD, NOW], "add", call_format))
    assert not takes_calls(grammars, two[call_format], constraint([NOW], None, call_format, parallel=False))


@pytest.mark.parametrize("call_format", FORMATS)
def test_the_answer_may_have_a_form_instead_of_calls(grammars: GrammarCompiler, call_format: Any) -> None:
    text = {"hermes": HERMES % ("now", "{}"), "llama3_json": LLAMA % ("now", "{}"), "pythonic": "[now()]"}
    for form, whole, wrong in (
        (StructuredOutput(json_schema={"type": "object", "required": ["z"]}), '{"z": 1}', '{"y": 1}'),
        (StructuredOutput(choice=["yes", "no"]), "no", "maybe"),
        (StructuredOutput(regex="[0-9]+"), "42", "x"),
    ):
        if call_format == "llama3_json" and form.kind == "json_schema":
            continue
        either = constraint([NOW], None, call_format, otherwise=form)
        assert takes_calls(grammars, whole, either)
        assert takes_calls(grammars, text[call_format], either)
        assert not takes_calls(grammars, wrong, either)
        assert not takes_calls(grammars, text[call_format] + whole, either)


STRICT = ADD | {"strict": True}

FREE: list[tuple[Any, str, bool]] = [
    ("hermes", "", True),
    ("hermes", "Hello <b>there</b>\n", True),
    (
        "hermes",
        "Let me see. " + HERMES % ("add", '{"a": 1, "b": 2}') + "\n" + HERMES % ("now", "{}"),
        True,
    ),
    ("hermes", HERMES % ("add", '{"a": 1, "b": 2}') + " Done.", True),
    ("hermes", HERMES % ("add", '{"a": 1}'), False),
    ("hermes", HERMES % ("sub", "{}"), False),
    ("hermes", "About <tool_call>", False),
    ("llama3_json", "Hello", True),
    ("llama3_json", "Use {braces}.", True),
    ("llama3_json", LLAMA % ("add", '{"a": 1, "b": 2}'), True),
    ("llama3_json", LLAMA % ("now", "{}"), True),
    ("llama3_json", LLAMA % ("now", '{"x": 1}'), False),
    ("llama3_json", LLAMA % ("add", '{"a": 1}'), False),
    ("pythonic", "Hello [1]", True),
    ("pythonic", "[add(a=1, b=2), now()]", True),
    ("pythonic", "[add(a=1, b=2), now(x=[1, 2])]", False),
    ("pythonic", "[add(a=1)]", False),
    ("pythonic", "[sub()]", False),
]


@pytest.mark.parametrize(("call_format", "text", "fits"), FREE)
def test_where_calls_are_free_only_a_call_is_held_to_anything(
    grammars: GrammarCompiler, call_format: Any, text: str, fits: bool
) -> None:
    assert takes_calls(grammars, text, calls_in_text([STRICT, NOW], call_format)) is fits


FREE_AND_NOT_STRICT: list[tuple[Any, str, bool]] = [
    ("hermes", "Hello <b>there</b>\n", True),
    ("hermes", HERMES % ("add", '{"a": 1, "b": 2}'), True),
    ("hermes", HERMES % ("add", '{"a": 1}'), False),
    ("hermes", HERMES % ("add", '{"a": "1", "b": 2}'), False),
    ("hermes", HERMES % ("sub", "{}"), False),
    ("llama3_json", LLAMA % ("add", '{"a": 1, "b": 2}'), True),
    ("llama3_json", LLAMA % ("add", '{"a": 1}'), False),
    ("llama3_json", '{"answer": 5}', True),
    ("llama3_json", ' { "name": "add"', False),
    ("llama3_json", "\nHello", True),
]


@pytest.mark.parametrize(("call_format", "text", "fits"), FREE_AND_NOT_STRICT)
def test_a_call_that_has_begun_fits_its_schema_strict_or_not(
    grammars: GrammarCompiler, call_format: Any, text: str, fits: bool
) -> None:
    assert takes_calls(grammars, text, calls_in_text([ADD, NOW], call_format)) is fits


@pytest.mark.parametrize("call_format", ["hermes", "llama3_json"])
def test_a_schema_that_can_not_be_used_or_need_not_be_kept_to_asks_for_any_object(
    grammars: GrammarCompiler, call_format: Any
) -> None:
    shape = HERMES if call_format == "hermes" else LLAMA
    broken = {"name": "add", "parameters": {"type": "string"}}
    for structure in (calls_in_text([broken], call_format), calls_in_text([ADD], call_format, ease=True)):
        assert takes_calls(grammars, shape % ("add", '{"z": [1]}'), structure)
    kept = calls_in_text([STRICT, broken | {"name": "sub"}], call_format, ease=True)
    assert not takes_calls(grammars, shape % ("add", '{"z": [1]}'), kept)
    with pytest.raises(InvalidParameter):
        calls_in_text([broken | {"strict": True}], call_format)


def test_nothing_in_thinking_is_a_call(grammars: GrammarCompiler) -> None:
    structure = calls_in_text([ADD], "hermes", after="</think>")
    thought = "I could use <tool_call> here.</think>"
    assert takes_calls(grammars, thought + HERMES % ("add", '{"a": 1, "b": 2}'), structure)
    assert not takes_calls(grammars, thought + HERMES % ("add", "{}"), structure)


def test_json_beside_calls_that_are_json_themselves_is_refused() -> None:
    form = StructuredOutput(json_object=True, param="response_format")
    with pytest.raises(InvalidParameter) as rejected:
        constraint([NOW], None, "llama3_json", otherwise=form)
    assert rejected.value.param == "response_format"


def test_parameters_may_be_text_and_may_allow_more(grammars: GrammarCompiler) -> None:
    more = {"name": "f", "parameters": '{"type": "object", "additionalProperties": true}'}
    assert takes_calls(grammars, HERMES % ("f", '{"x": 1}'), constraint([more], None, "hermes"))


@pytest.mark.parametrize(
    ("tools", "choice", "call_format"),
    [
        ([ADD], "absent", "hermes"),
        ([{"name": "f", "parameters": "[1"}], None, "hermes"),
        ([{"name": "f", "parameters": {"type": "string"}}], None, "hermes"),
        ([{"name": "f", "parameters": {"properties": {"a b": {}}}}], None, "pythonic"),
        ([{"name": "f", "parameters": {"properties": []}}], None, "pythonic"),
        ([{"name": "f", "parameters": {"required": 5}}], None, "pythonic"),
        ([{"name": "f", "parameters": {"required": [[]]}}], None, "pythonic"),
        ([{"name": "f", "parameters": '{"items":' * 101 + "{}" + "}" * 101}], None, "hermes"),
    ],
)
def test_what_can_not_be_called_is_refused(
    tools: list[dict[str, Any]], choice: str | None, call_format: Any
) -> None:
    with pytest.raises(InvalidParameter) as rejected:
        constraint(tools, choice, call_format)
    assert rejected.value.param == "tools"
