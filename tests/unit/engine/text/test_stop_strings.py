"""The stop matcher, against a search that is plain enough to be right."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton_engine.text.stop_strings import StopMatcher

LETTERS = st.text(alphabet="ab", max_size=12)
STOPS = st.lists(st.text(alphabet="ab", min_size=1, max_size=4), min_size=1, max_size=4)


def first_complete(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The text before the stop that is complete first (the longest of several), and that stop."""
    for end in range(1, len(text) + 1):
        ending_here = [stop for stop in stops if text[:end].endswith(stop)]
        if ending_here:
            stop = max(ending_here, key=len)
            return text[: end - len(stop)], stop
    return text, None


def longest_beginning(text: str, stops: list[str]) -> str:
    """The longest end of `text` that some stop begins with."""
    return next(
        text[start:] for start in range(len(text) + 1) if any(s.startswith(text[start:]) for s in stops)
    )


@given(st.lists(LETTERS, max_size=6), STOPS)
def test_any_split_gives_the_text_before_the_first_complete_stop(parts: list[str], stops: list[str]) -> None:
    matcher, shown, stop = StopMatcher(stops), "", None
    for part in parts:
        scan = matcher.push(part)
        shown += scan.text
        if scan.stop is not None:
            stop = scan.stop
            break
    shown += "" if stop else matcher.flush()
    assert (shown, stop) == first_complete("".join(parts), stops)


@given(st.lists(LETTERS, max_size=6), STOPS)
def test_exactly_what_may_begin_a_stop_is_held_back(parts: list[str], stops: list[str]) -> None:
    matcher, shown, seen = StopMatcher(stops), "", ""
    for part in parts:
        scan = matcher.push(part)
        if scan.stop is not None:
            return
        shown, seen = shown + scan.text, seen + part
        assert matcher.held == longest_beginning(seen, stops)
        assert shown + matcher.held == seen


@pytest.mark.parametrize(
    ("text", "stops", "shown", "stop"),
    [
        ("say END now", ["END"], "say ", "END"),
        ("aab", ["ab"], "a", "ab"),
        ("xabcd", ["abcd", "bc"], "xa", "bc"),  # complete first wins
        ("xabc", ["bc", "abc"], "x", "abc"),  # complete together: the longest
        ("no stop here", ["END"], "no stop here", None),
        ("ENEND", ["END"], "EN", "END"),  # a near miss that begins the real one
        ("日本語です", ["です"], "日本語", "です"),
    ],
)
def test_known_texts(text: str, stops: list[str], shown: str, stop: str | None) -> None:
    matcher, seen, found = StopMatcher(stops), "", None
    for character in text:
        scan = matcher.push(character)
        seen, found = seen + scan.text, scan.stop
        if found:
            break
    assert (seen + matcher.flush(), found) == (shown, stop)


def test_after_a_stop_and_after_a_flush_the_matcher_is_fresh() -> None:
    matcher = StopMatcher(["ab"])
    assert matcher.push("ab").stop == "ab"
    assert matcher.push("b").text == "b"
    assert matcher.push("a").text == ""
    assert matcher.flush() == "a"
    assert matcher.push("b").text == "b"


def test_an_empty_stop_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopMatcher(["ok", ""])
