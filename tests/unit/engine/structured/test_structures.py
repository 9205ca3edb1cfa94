"""What each kind of structure takes and refuses, over a vocabulary of bytes."""

from __future__ import annotations

import itertools
import json
from typing import Any

import jsonschema
import pytest

from baton_engine import InvalidParameter
from baton_engine.structured.compiler import GrammarCompiler
from tests.support.structures import allowed_ids, byte_grammars, matcher_of, takes
from tests.support.tiny_model import BOS, EOS


@pytest.fixture(scope="module")
def grammars() -> GrammarCompiler:
    return byte_grammars()


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": False,
}
FORMAT = {"properties": {"format": {"const": 1}}, "required": ["format"]}
CHOICE = ["yes", "no", 'a "b"\n\\', "é\x7f"]


@pytest.mark.parametrize(
    ("structure", "good", "bad"),
    [
        ({"json_object": True}, ['{}', '{"a": [1, {"b": null}]}', '{"é": "ü\\n"}'], ['[]', '1', '{"a"}']),
        ({"json_schema": {}}, ["1", "null", "[true]"], ["", "nul", "True", "'x'"]),
        ({"json_schema": True}, ["1", "[]"], [""]),
        ({"json_schema": PERSON}, ['{"name": "A", "age": 3}', '{"name":"A"}'], ['{"age": 3}', '{"name": 1}']),
        ({"json_schema": PERSON}, ['{"name": "A", "age": 0}'], ['{"name": "A", "age": -1}']),
        ({"json_schema": {"type": "string", "format": "int-of-my-own"}}, ['"x"'], ["x"]),
        ({"json_schema": {"type": "string", "format": "date"}}, ['"2024-02-29"'], ['"yesterday"']),
        ({"json_schema": {"type": "array", "uniqueItems": False, "maxItems": 1}}, ["[1]"], ["[1,1]"]),
        ({"json_schema": FORMAT}, ['{"format": 1}'], ['{"format": 2}', "{}"]),
        ({"json_schema": {"enum": [{"format": "x"}]}}, ['{"format": "x"}'], ["{}"]),
        ({"regex": r"[a-z]{2}/\d"}, ["ab/1"], ["ab/", "ab/12", "A"]),
        ({"regex": "a\nb"}, ["a\nb"], ["a b"]),
        ({"regex": "(){3}"}, [""], ["a"]),
        ({"choice": CHOICE}, CHOICE, ["y", "yesno", "é"]),
        ({"choice": ["a", "ab"]}, ["a", "ab"], ["b", "abb"]),
        ({"grammar": 'start: "(" start ")" | "x"'}, ["x", "((x))"], ["((x)", "()"]),
        ({"grammar": 'root ::= "x" digit+\ndigit ::= [0-9]'}, ["x1", "x12"], ["x", "1"]),
        ({"regex": "[0-9]", "after": "</think>"}, ["so {1}…</think>7", "</think>7"], ["7", "</think>"]),
        ({"json_schema": {"const": 1}, "after": "E"}, ["1E1"], ["1"]),
        ({"grammar": "start: A\nA: /a+/", "after": '"\n'}, ['b"\naa'], ["aa"]),
    ],
)  # fmt: skip
def test_what_it_takes(
    grammars: GrammarCompiler, structure: dict[str, Any], good: list[str], bad: list[str]
) -> None:
    for text in good:
        assert takes(grammars, text, **structure), text
    for text in bad:
        assert not takes(grammars, text, **structure), text


NAMES = {"type": "object", "additionalProperties": {"type": "integer"}}
TRANSLATED: list[Any] = [
    NAMES | {"propertyNames": {"type": "string"}},
    NAMES | {"propertyNames": {"type": "string", "enum": ["a", "b"]}, "required": ["a"]},
    NAMES | {"propertyNames": {"pattern": "^[ab]$"}},
    {"propertyNames": {"enum": ["a", "b"]}, "properties": {"a": {"type": "string"}, "c": {}}},
    {"propertyNames": {"enum": ["a"]}, "properties": {"c": {}}, "additionalProperties": False},
    {
        "properties": {"a": {"type": "integer"}, "b": {}, "c": {}},
        "dependentRequired": {"a": ["b"], "b": ["c"]},
    },
    {"anyOf": [{"not": {}}, {"type": "integer"}]},
    NAMES | {"properties": {"a": {}, "b": {}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
    {"oneOf": [{"required": ["a"]}, {"type": "object", "required": ["b"]}, {"required": ["c"]}]},
    {"properties": {"a": {"not": True}, "b": {"type": "integer"}}, "additionalProperties": True},
]


@pytest.mark.parametrize("schema", TRANSLATED, ids=json.dumps)
def test_what_is_said_in_other_words_means_the_same(grammars: GrammarCompiler, schema: Any) -> None:
    """By the `jsonschema` package, over all small objects of three names, in an order that it takes."""
    judge = jsonschema.Draft202012Validator(schema)
    objects = [
        dict(zip(names, values, strict=True))
        for count in range(4)
        for names in itertools.combinations("abc", count)
        for values in itertools.product([1, "x"], repeat=count)
    ]
    for value in (*objects, 1, "a", None, []):
        pairs = itertools.permutations(value.items()) if isinstance(value, dict) else ()
        spelled = [json.dumps(dict(order)) for order in pairs] or [json.dumps(value)]
        taken = any(takes(grammars, text, json_schema=schema) for text in spelled)
        assert taken == judge.is_valid(value), value


def test_whitespace_in_json_is_bounded(grammars: GrammarCompiler) -> None:
    assert takes(grammars, '{ "a" : [ 1 , 2 ] }', json_object=True)
    for text in ('{  "a": 1}', '{"a":  1}', '{\n"a": 1}', ' {"a": 1}', '{"a": 1} ', '{"a": 1,\t"b": 2}'):
        assert not takes(grammars, text, json_object=True), text


def test_a_schema_can_not_change_the_layout(grammars: GrammarCompiler) -> None:
    schema = {"type": "array", "x-guidance": {"whitespace_flexible": True, "whitespace_pattern": r"\s*"}}
    assert not takes(grammars, "[  ]", json_schema=schema)


@pytest.mark.parametrize(
    ("structure", "words"),
    [
        ({"json_schema": {"type": "strang"}}, "strang"),
        ({"json_schema": {"type": "string", "format": ["date"]}}, "format"),
        ({"json_schema": {"not": {"type": "string"}}}, '["not"]'),
        ({"json_schema": {"type": "array", "uniqueItems": True}}, "uniqueItems"),
        ({"json_schema": {"propertyNames": {"maxLength": 3}}}, "propertyNames"),
        ({"json_schema": {"dependentRequired": {"a": "b"}}}, "dependentRequired"),
        ({"json_schema": {"dependentRequired": {"a": ["b"]}, "allOf": 5}}, ""),
        ({"json_schema": {"oneOf": [{"required": ["a"]}, {"required": ["a"]}]}}, "oneOf"),
        ({"json_schema": {"$ref": "#/$defs/nowhere"}}, "nowhere"),
        ({"json_schema": {"$ref": "http://127.0.0.1:1/x.json"}}, "127.0.0.1"),
        ({"json_schema": False}, "Unsatisfiable"),
        ({"json_schema": {"type": "integer", "minimum": 5, "maximum": 3}}, "Unsatisfiable"),
        ({"json_schema": {"type": "string", "pattern": "(?=a)b"}}, "look-around"),
        ({"regex": "("}, "unclosed group"),
        ({"regex": r"(a)\1"}, "backreferences"),
        ({"grammar": "start: thing"}, "thing"),
        ({"grammar": "root ::= ("}, "neither Lark nor GBNF"),
        ({"grammar": "root ::= " + "(" * 20_000}, "nests too deep"),
        ({"grammar": "start: " + "(" * 20_000}, "too deeply nested"),
        ({"grammar": "start: start"}, "NoExtension"),
        ({"grammar": "hello"}, ""),
    ],
)  # fmt: skip
def test_what_can_not_be_compiled_is_refused(
    grammars: GrammarCompiler, structure: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidParameter) as refused:
        matcher_of(grammars, **structure, param="guided_x")
    assert refused.value.param == "guided_x"
    assert refused.value.message.startswith("guided_x can't be used: ")
    assert words in refused.value.message
    assert len(refused.value.message) < 500


def test_control_tokens_are_no_text(grammars: GrammarCompiler) -> None:
    anything = matcher_of(grammars, regex="(.|\n)+")
    assert allowed_ids(anything) == set(range(256)) - INVALID_FIRST_BYTES
    anything.accept(ord("x"))
    assert allowed_ids(anything) == (set(range(256)) - INVALID_FIRST_BYTES) | {EOS}
    assert BOS not in allowed_ids(anything)


INVALID_FIRST_BYTES = {*range(0x80, 0xC2), *range(0xF5, 0x100)}
"""No UTF-8 character begins with these (RFC 3629)."""


def test_only_the_end_may_follow_a_finished_structure(grammars: GrammarCompiler) -> None:
    matcher = matcher_of(grammars, choice=["ok"])
    matcher.accept(ord("o"))
    assert not matcher.is_complete
    matcher.accept(ord("k"))
    assert matcher.is_complete
    assert allowed_ids(matcher) == {EOS}


def test_a_structure_that_may_go_on_is_not_complete(grammars: GrammarCompiler) -> None:
    matcher = matcher_of(grammars, regex="a+")
    matcher.accept(ord("a"))
    assert not matcher.is_complete
    assert allowed_ids(matcher) == {ord("a"), EOS}
    matcher.accept(EOS)
    assert matcher.is_complete


def test_answers_do_not_share_their_places(grammars: GrammarCompiler) -> None:
    one, other = (matcher_of(grammars, choice=["ab", "cd"]) for _ in range(2))
    one.accept(ord("a"))
    assert allowed_ids(one) == {ord("b")}
    assert allowed_ids(other) == {ord("a"), ord("c")}


def test_a_model_without_an_end_token_has_no_structures() -> None:
    with pytest.raises(InvalidParameter, match="no end token"):
        matcher_of(byte_grammars(ends=frozenset()), regex="a")
