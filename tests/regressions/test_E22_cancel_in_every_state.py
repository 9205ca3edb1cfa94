"""E22: cancelled waiting, in prefill, in decode, when just finished, twice: one end, no block lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from baton_engine import RequestDelta
from baton_engine.assembly import LoadedEngine
from tests.support.engine_driver import GREEDY, add, ask, drain
from tests.support.tiny_model import tiny_engine


def cancel(engine: LoadedEngine, request_id: str) -> RequestDelta:
    report, (delta,) = engine.core.cancel(request_id)
    assert report.found
    assert delta.finish_reason == "cancelled"
    assert delta.blocks_freed == report.blocks_freed
    again, nothing = engine.core.cancel(request_id)
    assert (again.found, again.blocks_freed, nothing) == (False, 0, [])
    return delta


@pytest.mark.parametrize(
    ("steps", "freed", "completion_tokens"),
    [(0, 0, 0), (1, 3, 0), (2, 3, 0), (3, 3, 1), (10, 4, 8)],
    ids=["waiting", "prefill", "later in prefill", "first token", "decode"],
)
def test_blocks_go_back_within_one_step(steps: int, freed: int, completion_tokens: int) -> None:
    engine = tiny_engine(max_num_batched_tokens=16)
    add(engine, ask("a", list(range(42))))
    for _ in range(steps):
        engine.core.step()
    delta = cancel(engine, "a")
    assert delta.blocks_freed == freed
    assert delta.usage is not None
    assert delta.usage.completion_tokens == completion_tokens
    assert engine.core.stats().kv_blocks_held == 0
    assert not engine.core.has_work
    assert engine.core.waiting_room.num_requests == 0


def test_after_the_step_that_finished_it() -> None:
    engine = tiny_engine()
    add(engine, ask("a", [1, 2, 3], replace(GREEDY, max_tokens=1)))
    (last,) = engine.core.step()
    assert last.finish_reason == "length"
    assert engine.core.cancel("a")[0].found is False


def test_a_preempted_one_holds_nothing() -> None:
    engine = tiny_engine(num_blocks=12, block_size=4, enable_prefix_caching=False)
    add(engine, ask("old", [1] * 16))
    young = add(engine, ask("young", [2] * 16))
    while not young.num_preemptions:
        engine.core.step()
    assert cancel(engine, "young").blocks_freed == 0
    assert drain(engine)["old"][-1].finish_reason == "length"


def test_the_others_are_not_disturbed() -> None:
    alone = tiny_engine()
    add(alone, ask("kept", [4, 5, 6]))
    expected = [delta.token_ids for delta in drain(alone)["kept"]]
    engine = tiny_engine()
    kept = add(engine, ask("kept", [4, 5, 6]))
    for index in range(5):
        add(engine, ask(f"gone{index}", [index] * 20))
        engine.core.step()
        cancel(engine, f"gone{index}")
    drain(engine)
    assert tuple(kept.token_ids[3:]) == tuple(token_id for ids in expected for token_id in ids)
