"""E11: a seeded request gives the same tokens alone, beside unseeded ones, in any order, preempted."""

from __future__ import annotations

from dataclasses import replace

from baton_engine import SamplingParams
from tests.support.engine_driver import add, ask, drain, token_ids
from tests.support.tiny_model import tiny_engine

SEEDED = SamplingParams(max_tokens=30, temperature=1.2, seed=42, ignore_eos=True)
UNSEEDED = replace(SEEDED, seed=None)
PROMPT = list(range(10, 40))


def alone() -> list[int]:
    engine = tiny_engine()
    add(engine, ask("s", PROMPT, SEEDED))
    return token_ids(drain(engine)["s"])


def test_beside_unseeded_ones_in_any_order() -> None:
    for place in range(3):
        engine = tiny_engine()
        for index in range(3):
            seeded = index == place
            prompt = PROMPT if seeded else [index] * 12
            add(engine, ask("s" if seeded else f"u{index}", prompt, SEEDED if seeded else UNSEEDED))
        assert token_ids(drain(engine)["s"]) == alone()


def test_after_preemption() -> None:
    engine = tiny_engine(num_blocks=20, block_size=4)
    add(engine, ask("first", [3] * 30, UNSEEDED))
    request = add(engine, ask("s", PROMPT, SEEDED))
    answers = drain(engine)
    assert request.num_preemptions > 0
    assert token_ids(answers["s"]) == alone()


def test_other_seeds_and_no_seed_differ() -> None:
    engine = tiny_engine()
    for index, seed in enumerate((1, 2, None, None)):
        add(engine, ask(f"r{index}", PROMPT, replace(SEEDED, seed=seed)))
    answers = drain(engine)
    assert len({tuple(token_ids(deltas)) for deltas in answers.values()}) == 4
