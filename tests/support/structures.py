"""Grammars over the byte vocabulary, and what they take: for tests of structured output."""

from __future__ import annotations

from typing import Any

import numpy as np

from baton_engine import StructuredOutput
from baton_engine.structured.compiler import CompileLimits, GrammarCompiler
from baton_engine.structured.matcher import Matcher, StructureBroken
from tests.support.tiny_model import EOS, VOCAB_SIZE, ByteTokenizer


def byte_grammars(
    limits: CompileLimits | None = None, ends: frozenset[int] = frozenset({EOS})
) -> GrammarCompiler:
    return GrammarCompiler(ByteTokenizer(), VOCAB_SIZE, ends, limits)


def matcher_of(grammars: GrammarCompiler, **structure: Any) -> Matcher:
    grammar = grammars.grammar(StructuredOutput(**structure))
    assert grammar is not None
    return grammar.matcher()


def allowed_ids(matcher: Matcher) -> set[int]:
    words = np.zeros(-(-VOCAB_SIZE // 32) * 4, dtype=np.uint8)
    matcher.fill(words)
    return set(np.unpackbits(words, bitorder="little").nonzero()[0].tolist())


def takes(grammars: GrammarCompiler, text: str, **structure: Any) -> bool:
    """Whether `text` is a whole answer in this structure."""
    matcher = matcher_of(grammars, **structure)
    try:
        for byte in text.encode():
            matcher.accept(byte)
    except StructureBroken:
        return False
    return EOS in allowed_ids(matcher)
