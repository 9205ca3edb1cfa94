"""E8: max_tokens 1 gives exactly one token; max_tokens 0 is refused, and nothing crashes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from baton_engine import InvalidParameter, SamplingParams
from tests.support.engine_driver import GREEDY, add, ask, drain, token_ids
from tests.support.tiny_model import tiny_engine


def test_max_tokens_1() -> None:
    engine = tiny_engine()
    add(engine, ask("a", [1, 2, 3], replace(GREEDY, max_tokens=1)))
    deltas = drain(engine)["a"]
    assert len(deltas) == len(token_ids(deltas)) == 1
    assert deltas[0].finish_reason == "length"


def test_max_tokens_0() -> None:
    with pytest.raises(InvalidParameter) as caught:
        SamplingParams(max_tokens=0)
    assert caught.value.param == "max_tokens"
