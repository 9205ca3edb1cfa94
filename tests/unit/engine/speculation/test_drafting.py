"""Who gets guesses, and how many: patience, the batch's size, and the bounds of an answer."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from baton_engine import ConfigError, NgramSpeculation, SpeculationStats
from baton_engine.speculation.drafting import LONGEST_PAUSE, Patience, share_out
from tests.support.drafters import ScriptedDrafter, guess_with, knowing
from tests.support.engine_driver import GREEDY, add, ask, drain, token_ids
from tests.support.tiny_model import tiny_engine


def test_guesses_that_hold_bring_longer_ones_and_those_that_fail_shorter_ones() -> None:
    patience = Patience(8, 8)
    assert patience.next_length() == 8
    patience.learn(8, 2)
    assert patience.next_length() == 3
    patience.learn(3, 3)
    assert patience.next_length() == 6
    patience.learn(6, 6)
    assert patience.next_length() == 8


def test_text_that_can_not_be_guessed_costs_less_and_less() -> None:
    patience, tried = Patience(8, 8), []
    for step in range(200):
        length = patience.next_length()
        if length:
            tried.append(step)
            patience.learn(length, 0)
    assert tried[:6] == [0, 1, 4, 9, 18, 35]
    assert max(b - a for a, b in pairwise(tried)) == LONGEST_PAUSE + 1
    assert len(tried) == 10


def test_one_guess_that_holds_restores_trust() -> None:
    patience = Patience(8, 8)
    patience.learn(8, 0)
    patience.learn(1, 0)
    assert [patience.next_length() for _ in range(3)] == [0, 0, 1]
    patience.learn(1, 1)
    patience.learn(2, 0)
    assert patience.next_length() == 1


def test_an_even_share_for_each_and_what_one_leaves_for_the_others() -> None:
    assert share_out([4, 4, 4], 12) == [4, 4, 4]
    assert share_out([8, 1, 8], 9) == [4, 1, 4]
    assert share_out([8, 8, 8], 8) == [2, 3, 3]
    assert share_out([3, 5], 1) == [0, 1]
    assert share_out([3, 5], 0) == [0, 0]
    assert share_out([], 5) == []


def test_above_a_batch_size_nothing_is_guessed() -> None:
    engine = tiny_engine()
    guess_with(engine, lambda request, num_tokens: [0] * num_tokens, max_running=2)
    for name in "abc":
        add(engine, ask(name, [1, 2, 3], replace(GREEDY, max_tokens=9 if name == "c" else 20)))
    for _ in range(9):
        engine.core.step()
        assert engine.core.speculation.stats().num_drafts == 0
    assert len(engine.core.scheduler.running) == 2  # c is done
    engine.core.step()
    assert engine.core.speculation.stats().num_drafts == 2
    drain(engine)


def test_no_guess_for_tokens_that_will_not_come() -> None:
    """An answer of n tokens is never asked for more than n - 1 guesses, its last token for none."""
    engine = tiny_engine()
    guess_with(engine, lambda request, num_tokens: [0] * num_tokens, num_tokens=8)
    drafter = engine.core.speculation.drafter
    assert isinstance(drafter, ScriptedDrafter)
    for max_tokens, most in ((1, []), (2, []), (3, [1]), (5, [3, 1, 1])):
        drafter.asked.clear()
        add(engine, ask("a", [1, 2, 3], replace(GREEDY, max_tokens=max_tokens)))
        drain(engine)
        asked = [num_tokens for _, num_tokens in drafter.asked]
        assert all(ours <= theirs for ours, theirs in zip(asked, most, strict=False))
        assert len(asked) <= len(most)
        assert bool(asked) == bool(most)


def test_the_counts() -> None:
    engine = tiny_engine()
    assert engine.core.stats().speculation == SpeculationStats()
    add(engine, ask("a", [1, 2, 3], GREEDY))
    whole = token_ids(drain(engine)["a"])
    assert engine.core.stats().speculation == SpeculationStats()
    guess_with(engine, knowing({"b.0": whole}, wrong_every=4), num_tokens=4)
    add(engine, ask("b", [1, 2, 3], replace(GREEDY, max_tokens=12)))
    drain(engine)
    # Guesses, the wrong one in brackets: 2 3 (4) 5; since two held, three: 5 6 7; all that may come: 9 10 11.
    stats = engine.core.stats().speculation
    assert stats.num_drafts == 3
    assert stats.num_accepted_tokens == 12 - 1 - 3
    assert stats.num_accepted_tokens_per_pos == (3, 3, 2, 0)
    assert stats.acceptance_rate == stats.num_accepted_tokens / stats.num_draft_tokens


@pytest.mark.parametrize(
    "values",
    [
        {"num_tokens": 0},
        {"num_tokens": 33},
        {"max_step_tokens": 1},
        {"min_match": 0},
        {"min_match": 5, "max_match": 4},
        {"max_running": 0},
    ],
)
def test_bad_settings_are_named(values: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=f"speculation: {next(iter(values))} is"):
        NgramSpeculation(**values)
