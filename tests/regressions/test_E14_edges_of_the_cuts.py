"""E14: top_p 0 leaves the top token; top_k 0 and top_k over the vocabulary are off. No crash."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.engine_driver import GREEDY, add, ask, drain, token_ids
from tests.support.tiny_model import VOCAB_SIZE, tiny_engine

FREE = replace(GREEDY, temperature=1.0, seed=3)


def answer(**changes: object) -> list[int]:
    engine = tiny_engine()
    add(engine, ask("a", [1, 2, 3], replace(FREE, **changes)))  # type: ignore[arg-type]
    return token_ids(drain(engine)["a"])


def test_top_p_0_is_greedy() -> None:
    assert answer(top_p=0.0) == answer(temperature=0) != answer()


@pytest.mark.parametrize("top_k", [0, -1, VOCAB_SIZE, VOCAB_SIZE + 1, 10**9])
def test_top_k_off(top_k: int) -> None:
    assert answer(top_k=top_k) == answer()


def test_top_k_1_is_greedy() -> None:
    assert answer(top_k=1) == answer(temperature=0)
