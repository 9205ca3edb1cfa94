from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from baton_inference_router.scoring import Candidate, ranked


def candidate(replica: str, **numbers: Any) -> Candidate:
    values: dict[str, Any] = {"running": 0, "waiting": 0, "reserved": 0, "capacity": 10}
    return Candidate(replica, **(values | numbers))


def names(*candidates: Candidate) -> list[str]:
    return [each.replica for each in ranked(candidates)]


def test_the_load_is_what_runs_what_waits_and_what_is_reserved() -> None:
    assert candidate("a", running=3, waiting=2, reserved=1).load == 6


def test_least_load_first() -> None:
    assert names(
        candidate("busy", running=4),
        candidate("reserved", reserved=2),
        candidate("idle"),
        candidate("queued", waiting=3),
    ) == ["idle", "reserved", "queued", "busy"]


def test_waiting_tokens_then_kv_then_the_longest_unpicked_break_a_tie() -> None:
    assert names(
        candidate("d", waiting_tokens=5, kv_usage=0.1),
        candidate("c", kv_usage=0.5),
        candidate("b", kv_usage=0.2, last_pick=9),
        candidate("a", kv_usage=0.2, last_pick=3),
    ) == ["a", "b", "c", "d"]


def test_a_full_one_is_not_in_the_order() -> None:
    assert names(candidate("full", running=8, waiting=1, reserved=1), candidate("free", running=9)) == [
        "free"
    ]


@given(st.lists(st.integers(0, 12), min_size=1, max_size=8))
def test_nobody_over_its_bound_is_ever_ranked(loads: list[int]) -> None:
    order = ranked(candidate(f"r{index}", running=load) for index, load in enumerate(loads))
    assert sorted(each.load for each in order) == sorted(load for load in loads if load < 10)
    assert [each.load for each in order] == sorted(each.load for each in order)


def test_everyone_with_one_system_prompt_spreads_evenly() -> None:
    """A thousand picks, each request ending at random: no replica gets far from its share."""
    chance = random.Random(1)  # noqa: S311  # the same in each run
    running = [0] * 4
    picks = [0] * 4
    last = [0] * 4
    for pick in range(1, 1001):
        best = ranked(
            candidate(str(i), running=running[i], last_pick=last[i], capacity=10**6) for i in range(4)
        )[0]
        index = int(best.replica)
        running[index] += 1
        picks[index] += 1
        last[index] = pick
        if chance.random() < 0.9:
            ended = chance.choice([i for i in range(4) if running[i]])
            running[ended] -= 1
    assert max(picks) - min(picks) < 100  # the share is 250
