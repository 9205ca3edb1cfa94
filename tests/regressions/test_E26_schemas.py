"""E26: schemas that are invalid, recursive without end or huge are refused, or compiled within bounds, for
that request alone; the schema {} still comes to an end.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from baton_engine import InvalidParameter, SamplingParams, StructuredOutput
from baton_engine.assembly import LoadedEngine
from tests.support.engine_driver import GREEDY, add, ask, drain, script_tokens, text, token_ids
from tests.support.tiny_model import EOS, tiny_engine


def asking_for(schema: Any, **more: Any) -> SamplingParams:
    structured = StructuredOutput(json_schema=schema, param="response_format")
    return SamplingParams(structured=structured, **{"temperature": 0, "max_tokens": 64, **more})


@pytest.fixture(scope="module")
def engine() -> LoadedEngine:
    return tiny_engine()


@pytest.fixture(scope="module")
def alone() -> list[int]:
    engine = tiny_engine()
    add(engine, ask("good", [1, 2, 3]))
    return token_ids(drain(engine)["good"])


def doubling(levels: int, of: str) -> dict[str, Any]:
    """2 ** levels schemas, were each reference replaced by what it names."""
    defs: dict[str, Any] = {"a0": {"type": "object", "properties": {"q": {"type": "string"}}}}
    for level in range(1, levels):
        inner = {"$ref": f"#/$defs/a{level - 1}"}
        defs[f"a{level}"] = {of: [inner, {**inner, "description": "x"}]}
    return {"$ref": f"#/$defs/a{levels - 1}", "$defs": defs}


def number_named(name: str) -> dict[str, Any]:
    return {"properties": {name: {"type": "integer"}}}


REFUSED = {
    "invalid": {"type": "strang"},
    "not a schema": {"type": "object", "properties": 3},
    "circular": {"allOf": [{"$ref": "#"}, {"type": "object"}]},
    "nothing but itself": {"$ref": "#"},
    "two that name each other": {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
    },
    "10 billion combinations": {
        "allOf": [{"oneOf": [number_named(f"k{i}_{j}") for j in range(10)]} for i in range(10)]
    },
    "too many properties": {"type": "object", "properties": {f"p{i}": {} for i in range(2_000)}},
    "elsewhere": {"$ref": "http://127.0.0.1:1/schema.json"},
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_schema_is_refused_and_nobody_else_notices(
    engine: LoadedEngine, alone: list[int], name: str
) -> None:
    add(engine, ask(name, [1, 2, 3]))
    first = engine.core.step()
    with pytest.raises(InvalidParameter) as refused:
        add(engine, ask("bad", [5], asking_for(REFUSED[name])))
    assert refused.value.param == "response_format"
    assert engine.core.waiting_room.num_requests == 0
    assert token_ids(first + drain(engine)[name]) == alone


@pytest.mark.parametrize(
    "schema",
    [
        doubling(24, "allOf"),
        doubling(24, "anyOf"),
        {"type": "array", "items": {"type": "integer"}, "minItems": 100_000},
        {"type": "string", "minLength": 1_000_000},
        {"enum": [f"value {number}" for number in range(5_000)]},
        {"type": "string", "pattern": "^((a{1,100}){1,100}){1,100}$"},
    ],
    ids=["allOf", "anyOf", "long array", "long string", "long enum", "nested counts"],
)
def test_a_huge_schema_is_compiled_within_bounds(engine: LoadedEngine, schema: Any) -> None:
    add(engine, ask("huge", [5], asking_for(schema, max_tokens=8)))
    (last,) = drain(engine)["huge"][-1:]
    assert last.finish_reason in ("stop", "length")


def test_recursion_without_end_ends_at_max_tokens(engine: LoadedEngine) -> None:
    schema = {
        "type": "object",
        "properties": {"c": {"$ref": "#"}},
        "required": ["c"],
        "additionalProperties": False,
    }
    add(engine, ask("deep", [5], asking_for(schema, max_tokens=40)))
    deltas = drain(engine)["deep"]
    assert deltas[-1].finish_reason == "length"
    assert text(deltas).replace(" ", "").startswith('{"c":{"c":{"c":')


def test_the_empty_schema_ends() -> None:
    engine = tiny_engine()
    wish = '[1, {"a": null}]'
    script_tokens(engine, lambda n: [*wish.encode(), EOS][min(n, len(wish))])
    add(engine, ask("any", [5], asking_for({})))
    deltas = drain(engine)["any"]
    assert deltas[-1].finish_reason == "stop"
    assert json.loads(text(deltas)) == [1, {"a": None}]


def test_a_model_that_writes_nothing_but_spaces_is_made_to_write_json() -> None:
    engine = tiny_engine()
    script_tokens(engine, lambda n: ord(" "))
    properties = {"a": {"const": 1}, "b": {"const": [2]}}
    schema = {
        "properties": properties,
        "required": ["a", "b"],
        "additionalProperties": False,
        "type": "object",
    }
    add(engine, ask("space", [5], asking_for(schema)))
    deltas = drain(engine)["space"]
    assert deltas[-1].finish_reason == "stop"
    assert json.loads(text(deltas)) == {"a": 1, "b": [2]}
    assert text(deltas) == '{ "a" : 1 , "b" : [ 2 ] }'


def test_the_default_sampling_is_untouched(alone: list[int]) -> None:
    engine = tiny_engine()
    add(engine, ask("good", [1, 2, 3], GREEDY))
    add(engine, ask("other", [1, 2, 3], asking_for({"const": "abc"})))
    answers = drain(engine)
    assert token_ids(answers["good"]) == alone
    assert text(answers["other"]) == '"abc"'
