from __future__ import annotations

from typing import Any

import pytest

from baton_engine import InvalidParameter, SamplingParams, StructuredOutput


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"not": schema}
    return schema


@pytest.mark.parametrize(
    ("structure", "words"),
    [
        ({}, "not none"),
        ({"regex": "a", "choice": ["a"]}, "not regex, choice"),
        ({"json_object": True, "json_schema": {}}, "not json_object, json_schema"),
        ({"json_schema": "{"}, "is not JSON"),
        ({"json_schema": "[" * 100_000}, "levels deep"),
        ({"json_schema": []}, "object or a boolean"),
        ({"json_schema": {"const": float("nan")}}, "is not JSON"),
        ({"json_schema": {"const": object()}}, "is not JSON"),
        ({"json_schema": nested(101)}, "over 100 levels deep"),
        ({"json_schema": nested(100_000)}, "over 100 levels deep"),
        ({"json_schema": {"description": "x" * 300_000}}, "300019 bytes; at most 262144"),
        ({"json_schema": '{"description": "' + "x" * 300_000 + '"}'}, "at most 262144"),
        ({"regex": ""}, "not empty"),
        ({"regex": 3}, "regex must be a text"),
        ({"regex": "a" * 65_537}, "65537 bytes; at most 65536"),
        ({"grammar": "é" * 40_000}, "80000 bytes; at most 65536"),
        ({"choice": []}, "list of texts"),
        ({"choice": "yes"}, "list of texts"),
        ({"choice": ["yes", ""]}, "not empty"),
        ({"choice": ["yes", 1]}, "nothing else"),
        ({"choice": ["a"] * 10_001}, "10001 texts; at most 10000"),
        ({"regex": "\ud800"}, "half of a character"),
        ({"choice": ["\udc00"]}, "half of a character"),
        ({"json_schema": {"const": "\ud83d"}}, "half of a character"),
        ({"regex": "a", "after": "\ud800"}, "half of a character"),
    ],
)
def test_refusals_name_the_parameter(structure: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        StructuredOutput(**structure, param="response_format")
    assert refused.value.param == "response_format"
    assert words in refused.value.message
    assert refused.value.message.startswith("response_format can't be used: ")
    assert len(refused.value.message) < 500


def test_100_levels_are_taken() -> None:
    assert StructuredOutput(json_schema=nested(100)).kind == "json_schema"


def test_equal_structures_have_equal_keys() -> None:
    as_text = StructuredOutput(json_schema='{"type":   "object"}', param="response_format")
    as_value = StructuredOutput(json_schema={"type": "object"})
    assert as_text.key == as_value.key == StructuredOutput(json_object=True).key
    assert as_value.key != StructuredOutput(json_schema={"type": "object"}, after="</think>").key
    assert StructuredOutput(choice=("a", "b")).key == StructuredOutput(choice=["a", "b"]).key


def test_the_order_of_properties_is_part_of_a_schema() -> None:
    one = StructuredOutput(json_schema={"properties": {"a": {}, "b": {}}})
    other = StructuredOutput(json_schema={"properties": {"b": {}, "a": {}}})
    assert one.key != other.key


def test_a_structure_edits_logits() -> None:
    assert SamplingParams(structured=StructuredOutput(regex="a")).edits_logits
    assert not SamplingParams().edits_logits
