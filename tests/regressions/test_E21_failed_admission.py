"""E21: an admission that fails half-way gives every block back."""

from __future__ import annotations

from dataclasses import replace

from tests.support.engine_driver import GREEDY, add, ask, drain, token_ids
from tests.support.tiny_model import tiny_engine


def test_the_pool_is_as_before_after_each_vain_try() -> None:
    engine = tiny_engine(num_blocks=12)
    pool = engine.core.kv_cache.pool
    prefix = list(range(48))
    add(engine, ask("first", prefix, replace(GREEDY, max_tokens=1)))
    drain(engine)
    assert pool.counts() == (12, 9, 3, 0)
    add(engine, ask("holder", [9] * 100, replace(GREEDY, max_tokens=8)))
    engine.core.step()
    before = pool.counts()
    late = add(engine, ask("late", [*prefix, *range(100, 150)], replace(GREEDY, max_tokens=4)))
    for _ in range(3):
        engine.core.step()
        assert late.block_ids == []
        assert pool.counts() == before
        pool.check()
    assert len(token_ids(drain(engine)["late"])) == 4
