from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from baton_inference_router.scoring import Asked, Candidate, ranked


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


def test_the_work_that_a_cache_spares_outweighs_some_load() -> None:
    """A request that runs counts 128 tokens here: half of 64 still to be written, four prompt tokens each;
    what is computed anew counts twice."""
    two = [candidate("warm", running=2), candidate("cold")]
    assert names(*two) == ["cold", "warm"]
    assert [each.replica for each in ranked(two, Asked(1000), {"warm": 512})] == ["warm", "cold"]
    assert [each.replica for each in ranked(two, Asked(1000), {"warm": 112})] == ["cold", "warm"]


def test_the_score_is_seconds_of_work_at_the_measured_speed() -> None:
    fast = candidate("fast", running=1, waiting_tokens=900, tokens_per_second=2000, answer_tokens=10)
    slow = candidate("slow", tokens_per_second=250)
    best, other = ranked([slow, fast], Asked(500), {"fast": 100})
    assert (best.replica, best.seconds) == ("fast", (900 + 10 / 2 * 4 + 2 * 400) / 2000)
    assert (other.replica, other.seconds) == ("slow", 4.0)


def test_speeds_that_hardly_differ_are_the_same() -> None:
    """Else all would go to the one that was measured while the others rested."""
    quick = candidate("quick", running=1, tokens_per_second=2000)
    rested = candidate("rested", tokens_per_second=1000)
    assert names(quick, rested) == ["rested", "quick"]
    order = ranked([quick, rested], Asked(2000))
    assert [each.replica for each in order] == ["rested", "quick"]


def test_two_like_requests_of_one_burst_meet_rather_than_compute_the_same_twice() -> None:
    """The first is on its way to be computed where the second would have to wait for it."""
    busy = candidate("busy", reserved=1, waiting_tokens=1000)
    order = ranked([candidate("idle"), busy], Asked(1000), {"busy": 960})
    assert [each.replica for each in order] == ["busy", "idle"]


def test_what_all_chats_begin_with_gathers_none() -> None:
    two = [candidate("a", last_pick=2), candidate("b", last_pick=1)]

    def first(tokens: int, cached: int) -> str:
        return ranked(two, Asked(tokens), {"a": cached})[0].replica

    assert (first(100, 48), first(100, 64)) == ("b", "a")
    assert (first(1000, 96), first(1000, 112)) == ("b", "a")


def test_no_prefix_makes_a_crowd() -> None:
    """A cache earns nothing at five requests more than the least busy has, and half as many again."""
    prompt, cached = Asked(100_000), {"warm": 100_000}

    def first(warm: int, cold: int) -> str:
        pair = [candidate("warm", running=warm, capacity=99), candidate("cold", running=cold, capacity=99)]
        return ranked(pair, prompt, cached)[0].replica

    assert (first(4, 0), first(5, 0)) == ("warm", "cold")
    assert (first(30, 20), first(31, 20)) == ("warm", "cold")


def test_what_many_hold_is_soon_held_by_all() -> None:
    """Half of the four requests, if there are several holders; who has less of it cached is none of them."""
    prompt = Asked(10_000)

    def first(holders: int, load: int) -> str:
        warm = [candidate(f"warm{i}", running=load) for i in range(holders)]
        also = {"part": 5_000} | {each.replica: 10_000 for each in warm}
        order = ranked([*warm, candidate("part", running=load), candidate("cold")], prompt, also)
        return order[0].replica

    assert (first(1, 4), first(1, 5)) == ("warm0", "cold")
    assert (first(2, 2), first(2, 3)) == ("warm0", "cold")
    assert (first(9, 2), first(9, 3)) == ("warm0", "cold")


def test_by_chance_longer_answers_are_no_reason() -> None:
    """All replicas of a model answer the same people: at equal load the longest unpicked gets the next."""
    lucky = candidate("lucky", running=2, answer_tokens=30, last_pick=2)
    other = candidate("other", running=2, answer_tokens=34, last_pick=1)
    new = candidate("new", running=2, last_pick=3)
    order = ranked([lucky, other, new])
    assert [each.replica for each in order] == ["other", "lucky", "new"]
    assert {each.seconds for each in order} == {2 * 32 / 2 * 4 / 1000}


def test_what_has_probably_ended_counts_no_work_but_keeps_its_seat() -> None:
    two = [candidate("long", running=2, ended=0.5), candidate("short", running=2, ended=1.5)]
    assert names(*two) == ["short", "long"]
    assert ranked([candidate("full", running=10, ended=9.0)]) == []


def test_the_best_few_are_the_beginning_of_the_whole_order() -> None:
    chance = random.Random(3)  # noqa: S311  # the same in each run
    many = [candidate(f"r{i}", running=chance.randint(0, 9), last_pick=i) for i in range(50)]
    cached = {f"r{i}": 512 for i in range(0, 50, 7)}
    whole = ranked(many, Asked(700), cached)
    assert len(whole) == 50
    assert ranked(many, Asked(700), cached, most=8) == whole[:8]


def test_a_newcomer_gets_its_share_of_the_load_and_grows() -> None:
    def first(ramp: float, load: int) -> str:
        old = [candidate(f"old{i}", running=8, waiting=2, capacity=99) for i in range(2)]
        return ranked([*old, candidate("new", running=load, capacity=99, ramp=ramp)])[0].replica

    assert first(0.0, 0) == "new"  # one at once: it has to become warm
    assert first(0.0, 1) == "old0"
    assert (first(0.5, 4), first(0.5, 5)) == ("new", "old0")
    assert first(1.0, 9) == "new"


def test_newcomers_alone_hold_nobody_back() -> None:
    assert names(candidate("a", running=5, ramp=0.1), candidate("b", running=3, ramp=0.1)) == ["b", "a"]
    both = [candidate("warm", running=1, ramp=0.1), candidate("idle", ramp=0.1)]
    assert [each.replica for each in ranked(both, Asked(1000), {"warm": 960})] == ["warm", "idle"]


def test_one_without_memory_for_the_prompt_comes_after_those_that_have_it() -> None:
    tight, roomy = candidate("tight", kv_free_tokens=99), candidate("roomy", running=8, kv_free_tokens=1000)
    assert [each.replica for each in ranked([tight, roomy], Asked(100))] == ["roomy", "tight"]
    assert [each.replica for each in ranked([tight, roomy], Asked(100), {"tight": 16})] == ["tight", "roomy"]


def test_the_bound_in_tokens_shuts_like_the_one_in_requests() -> None:
    bound = candidate("a", waiting=1, waiting_tokens=900, max_waiting_tokens=1000)
    assert [each.replica for each in ranked([bound], Asked(100))] == ["a"]
    assert ranked([bound], Asked(101)) == []
    empty = candidate("b", max_waiting_tokens=1000)
    assert [each.replica for each in ranked([empty], Asked(5000))] == ["b"]


def test_an_adapter_that_must_be_loaded_costs_four_thousand_tokens() -> None:
    has = candidate("has", running=9, adapters=frozenset({"french"}))
    asked = Asked(100, adapter="french")
    assert [each.replica for each in ranked([candidate("lacks"), has], asked)] == ["has", "lacks"]
    assert [each.replica for each in ranked([candidate("lacks"), has], Asked(100))] == ["lacks", "has"]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8))
def test_where_nothing_is_cached_it_is_least_loaded(loads: list[int]) -> None:
    order = ranked([candidate(f"r{i}", running=load) for i, load in enumerate(loads)], Asked(700))
    assert [each.load for each in order] == sorted(loads)
