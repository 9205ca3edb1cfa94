"""Objects that name their properties hold no others, unless something else judges them too."""

from __future__ import annotations

import itertools
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton_engine.structured.closed_objects import with_closed_objects
from tests.support.structures import byte_grammars, takes

A: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
B: dict[str, Any] = {"type": "object", "properties": {"b": {"type": "integer"}}}
NONE_MORE = {"additionalProperties": False}
OPEN = A | {"additionalProperties": True}


@pytest.mark.parametrize(
    ("schema", "closed"),
    [
        (A, A | NONE_MORE),
        ({"type": "array", "items": A}, {"type": "array", "items": A | NONE_MORE}),
        ({"properties": {"x": A}}, {"properties": {"x": A | NONE_MORE}} | NONE_MORE),
        (
            # As pydantic writes an optional model.
            {"$defs": {"A": A}, "properties": {"x": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}}},
            {
                "$defs": {"A": A | NONE_MORE},
                "properties": {"x": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}},
            }
            | NONE_MORE,
        ),
        ({"allOf": [A], "title": "T"}, {"allOf": [A | NONE_MORE], "title": "T"}),
    ],
)
def test_what_names_its_properties_is_closed(schema: Any, closed: Any) -> None:
    assert with_closed_objects(schema) == closed


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": "object"},
        {"type": "object", "properties": {}},
        OPEN,
        A | {"additionalProperties": {"type": "string"}},
        A | {"required": ["a", "z"]},
        A | {"minProperties": 2},
        A | {"patternProperties": {"^x": {}}},
        {"allOf": [A, B]},
        {"oneOf": [A, B]},
        {"anyOf": [A, B], "required": ["c"]},
        A | {"anyOf": [{"required": ["c"]}]},
        {"allOf": [{"properties": {"x": A}}, {"properties": {"x": B}}]},
        {"$defs": {"A": A}, "allOf": [{"$ref": "#/$defs/A"}, B]},
        {"$defs": {"A": A, "R": {"$ref": "#/$defs/A"}}, "allOf": [{"$ref": "#/$defs/R"}, B]},
        {"$defs": {"a/b": A}, "$ref": "#/$defs/a~1b", "required": ["c"]},
        {"$defs": {"A": A | {"$anchor": "here"}}, "allOf": [{"$ref": "#here"}, B]},
        {"$defs": {"A": A}, "$ref": "#/parts/P", "parts": {"P": {"allOf": [{"$ref": "#/$defs/A"}, B]}}},
        {"enum": [A], "const": A, "default": A},
    ],
    ids=str,
)
def test_what_says_otherwise_or_has_another_judge_stays(schema: Any) -> None:
    assert with_closed_objects(schema) == schema


def test_the_schema_that_was_given_is_not_changed() -> None:
    schema = {"properties": {"x": {"properties": {"y": {}}}}}
    with_closed_objects(schema)
    assert schema == {"properties": {"x": {"properties": {"y": {}}}}}


def test_a_masked_answer_holds_what_is_named_and_no_more() -> None:
    grammars = byte_grammars()
    assert takes(grammars, '{"a": 1}', json_schema=A)
    assert not takes(grammars, '{"a": 1, "c": 2}', json_schema=A)
    assert takes(grammars, '{"a": 1, "c": 2}', json_schema=OPEN)
    assert takes(grammars, '{"a": 1, "b": 2}', json_schema={"allOf": [A, B]})


_REFERENCES = st.sampled_from([{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}])


def _larger(part: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    named = st.dictionaries(st.sampled_from("ab"), part, min_size=1)
    several = st.lists(part, min_size=1, max_size=2)
    return st.fixed_dictionaries(
        {},
        optional={
            "properties": named,
            "required": st.lists(st.sampled_from("ab"), unique=True, max_size=1),
            "anyOf": several,
            "allOf": several,
            "oneOf": several,
            "additionalProperties": st.one_of(st.booleans(), part),
        },
    )


_PARTS = st.recursive(
    st.one_of(st.just({"type": "integer"}), st.just({}), _REFERENCES), _larger, max_leaves=6
)


def _objects(depth: int) -> list[Any]:
    inside = [1, "x"] if depth == 0 else [1, "x", *_objects(depth - 1)]
    return [
        dict(zip(names, values, strict=True))
        for count in range(3)
        for names in itertools.combinations("abc", count)
        for values in itertools.product(inside, repeat=count)
    ]


SMALL = _objects(1)


@given(_PARTS, _larger(_PARTS), _larger(st.just({"type": "integer"})))
@settings(max_examples=150, deadline=None)
def test_every_answer_is_still_valid_and_some_are_left(whole: Any, first: Any, second: Any) -> None:
    named = {"A": {"type": "object"} | second, "B": {"properties": {"a": first}}}
    schema = {"allOf": [whole], "$defs": named}
    before = jsonschema.Draft202012Validator(schema)
    after = jsonschema.Draft202012Validator(with_closed_objects(schema))
    try:
        were = [before.is_valid(value) for value in SMALL]
    except RecursionError:
        return  # a reference in a circle judges nothing
    are = [after.is_valid(value) for value in SMALL]
    assert all(was for was, now in zip(were, are, strict=True) if now)
    assert any(are) or not any(were)
