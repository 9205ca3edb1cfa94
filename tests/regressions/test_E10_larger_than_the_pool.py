"""E10: a request that could never fit the KV pool is refused at once; one that just fits runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from baton_engine import KVCapacityExceeded
from tests.support.engine_driver import GREEDY, add, ask, drain, token_ids
from tests.support.tiny_model import tiny_engine


def test_refused_at_once() -> None:
    engine = tiny_engine(num_blocks=4)
    with pytest.raises(KVCapacityExceeded) as caught:
        add(engine, ask("a", [1] * 60, replace(GREEDY, max_tokens=6)))
    assert (caught.value.needed_blocks, caught.value.total_blocks) == (5, 4)
    assert not engine.core.has_work


def test_the_largest_that_fits_runs_beside_others() -> None:
    engine = tiny_engine(num_blocks=4)
    add(engine, ask("small", [2] * 10, replace(GREEDY, max_tokens=20)))
    add(engine, ask("large", [1] * 60, replace(GREEDY, max_tokens=5)))
    answers = drain(engine)
    assert len(token_ids(answers["large"])) == 5
    assert len(token_ids(answers["small"])) == 20
