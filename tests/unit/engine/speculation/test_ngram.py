"""Guesses from the text: the longest earlier match, the newest of equals, and what followed it."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from baton_engine.request import Request
from baton_engine.sampling_params import SamplingParams
from baton_engine.speculation.drafting import Wanted
from baton_engine.speculation.ngram import MOST_PLACES, NgramDrafter, PlaceIndex


def request(token_ids: Sequence[int]) -> Request:
    return Request("a", tuple(token_ids), SamplingParams(), max_tokens=100, seed=0)


def drafts(
    token_ids: Sequence[int], num_tokens: int = 3, min_match: int = 2, max_match: int = 4
) -> list[int]:
    drafter = NgramDrafter(min_match, max_match)
    one = request(token_ids)
    return drafter.draft([Wanted(one, num_tokens)], 100, [one])[0]


def test_what_followed_the_last_tokens_before() -> None:
    assert drafts([1, 2, 3, 4, 5, 9, 1, 2]) == [3, 4, 5]
    assert drafts([1, 2, 3, 4, 5, 9, 1, 2], num_tokens=1) == [3]


def test_no_earlier_place_no_guess() -> None:
    assert drafts([1, 2, 3, 4, 5]) == []
    assert drafts([7, 1, 8, 1]) == []  # one token alone is too little
    assert drafts([7, 1, 8, 1], num_tokens=1, min_match=1) == [8]
    assert drafts([1]) == []
    assert drafts([1, 2]) == []


def test_a_longer_match_wins_over_a_newer_one() -> None:
    assert drafts([5, 1, 2, 77, 0, 6, 1, 2, 88, 0, 5, 1, 2], num_tokens=1) == [77]


def test_of_equal_matches_the_newest_wins() -> None:
    assert drafts([1, 2, 77, 0, 1, 2, 88, 0, 1, 2], num_tokens=1) == [88]


def test_a_match_over_max_match_counts_no_more() -> None:
    old, new = [9, 8, 7, 6, 1, 2, 77], [3, 8, 7, 6, 1, 2, 88]
    now = [9, 8, 7, 6, 1, 2]
    assert drafts([*old, *new, *now], 1, max_match=6) == [77]
    assert drafts([*old, *new, *now], 1, max_match=5) == [88]


def test_a_text_that_repeats_is_guessed_past_its_end() -> None:
    assert drafts([4, 4, 4], num_tokens=5) == [4] * 5
    assert drafts([1, 2, 3, 1, 2, 3, 1, 2], num_tokens=7) == [3, 1, 2, 3, 1, 2, 3]


def test_only_the_newest_places_are_looked_at() -> None:
    index = PlaceIndex(2)
    assert index.places([1, 2, 0] * 40 + [1, 2]) == [3 * n + 2 for n in range(39, 39 - MOST_PLACES, -1)]


def test_guesses_are_shared_out_among_those_that_have_some() -> None:
    drafter = NgramDrafter(2, 4)
    some = [request([1, 2, 1, 2]), request([1, 2, 3, 4]), request([5, 5, 5])]
    wanted = [Wanted(one, num_tokens) for one, num_tokens in zip(some, (8, 8, 2), strict=True)]
    assert [len(draft) for draft in drafter.draft(wanted, 7, some)] == [5, 0, 2]


def test_the_index_is_given_back() -> None:
    drafter, one = NgramDrafter(2, 4), request([1, 2, 1, 2])
    drafter.draft([Wanted(one, 2)], 100, [one])
    drafter.forget(one)
    drafter.forget(one)
    drafter.check_idle()


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(1, 3), st.integers(0, 30))
def test_the_index_finds_what_a_search_through_all_tokens_finds(
    token_ids: list[int], size: int, grown: int
) -> None:
    """Also when the tokens came in several parts."""
    index = PlaceIndex(size)
    for length in (max(1, len(token_ids) - grown), len(token_ids)):
        text = token_ids[:length]
        found = [at for at in range(size, length) if text[at - size : at] == text[length - size :]]
        assert index.places(text) == (found[::-1][:MOST_PLACES] if length >= size else [])
