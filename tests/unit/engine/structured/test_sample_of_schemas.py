"""The sample of schemas of `python -m bench.structured`: whatever is written by chance in their structures,
and comes to an end, is valid by another implementation of the specification.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from baton_engine.structured.compiler import GrammarCompiler
from bench.structured.__main__ import share_of_valid
from bench.structured.sample import Finding, fault, schemas
from tests.support.structures import allowed_ids, byte_grammars, matcher_of
from tests.support.tiny_model import EOS

SCHEMAS = schemas()


@pytest.fixture(scope="module")
def grammars() -> GrammarCompiler:
    return byte_grammars()


def by_chance(grammars: GrammarCompiler, schema: Any, seed: int, most: int = 600) -> str | None:
    """A text that follows the schema's grammar; None if it has no end within `most` bytes."""
    chance, matcher, text = random.Random(seed), matcher_of(grammars, json_schema=schema), bytearray()  # noqa: S311
    while not matcher.is_complete:
        allowed = sorted(allowed_ids(matcher))
        # An end is taken where there is one, and a quote often: a string by chance is long otherwise.
        closing = [byte for byte in (EOS, *b'"}]') if byte in allowed]
        byte = closing[0] if closing and chance.random() < 0.5 else chance.choice(allowed)
        if len(text) == most:
            return None
        matcher.accept(byte)
        if byte != EOS:
            text.append(byte)
    return text.decode()


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_ends_is_valid(grammars: GrammarCompiler, name: str) -> None:
    texts = [by_chance(grammars, SCHEMAS[name], seed) for seed in range(2)]
    ended = [text for text in texts if text is not None]
    assert ended
    assert [fault(text, SCHEMAS[name]) for text in ended] == [""] * len(ended)


def test_a_fault_is_found() -> None:
    assert fault("[1, 2]", {"type": "array", "maxItems": 2}) == ""
    assert "too long" in fault("[1, 2, 3]", {"type": "array", "maxItems": 2})
    assert fault("[1, 2", {}).startswith("no JSON")
    assert "not a 'date'" in fault('"2023-02-29"', {"type": "string", "format": "date"})


def test_answers_without_an_end_are_not_counted() -> None:
    findings = [Finding("a", finished=True), Finding("b", finished=True, invalid="x"), Finding("c")]
    assert share_of_valid(findings) == 0.5
    assert share_of_valid([Finding("c"), Finding("d", refused="x")]) == 0.0
