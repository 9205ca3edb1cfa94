"""Phrases as symbols, and the automaton that finds all of them in one pass."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton_common.phrases import BEGINNING, BOUNDARY, ROOT, PhraseAutomaton, symbols_of
from baton_common.text_normal import comparable, fold_confusables, hidden_tag_text, normal_form


def test_symbols() -> None:
    assert symbols_of(" The\n Plan ") == f"{BOUNDARY}the{BOUNDARY} {BOUNDARY}plan{BOUNDARY}"
    assert symbols_of("The", whole_words=False) == "the"


@settings(deadline=None)
@given(
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=6, unique=True),
    st.text("abc", max_size=30),
)
def test_the_automaton_finds_what_a_search_finds(patterns: list[str], text: str) -> None:
    automaton = PhraseAutomaton(patterns)
    state, found = 0, set[tuple[int, int]]()
    for end, char in enumerate(text, 1):
        state = automaton.step(state, char)
        found |= {(end - automaton.lengths[index], index) for index in automaton.found[state]}
        longest = max(
            (size for one in patterns for size in range(len(one) + 1) if text[:end].endswith(one[:size])),
            default=0,
        )
        assert automaton.depth[state] == longest
    expected = {
        (start, index)
        for index, one in enumerate(patterns)
        for start in range(len(text))
        if text.startswith(one, start)
    }
    assert found == expected


def test_the_first_that_ends_is_told() -> None:
    automaton = PhraseAutomaton([symbols_of("plan b"), symbols_of("plan")])
    assert automaton.first_in("the PLAN b") == 1
    assert automaton.first_in("planned") is None


@settings(deadline=None)
@given(
    st.lists(
        st.text("ab -", min_size=1, max_size=4).filter(lambda text: text.strip(" -")), min_size=1, max_size=4
    ),
    st.booleans(),
    st.text("abcÄ \n-\u200bß中", max_size=30),
)
def test_what_is_skipped_could_not_have_mattered(phrases: list[str], whole_words: bool, text: str) -> None:
    """Beside one that steps through every symbol."""
    automaton = PhraseAutomaton([symbols_of(phrase, whole_words=whole_words) for phrase in phrases])
    symbols = list(symbols_of(f"c {text}", whole_words=True))
    state, first = ROOT, None
    for symbol in symbols:
        state = automaton.step(state, symbol)
        if first is None and automaton.found[state]:
            first = automaton.found[state][0]
    assert automaton.first_in(f"c {text}") == first
    index, reading = automaton.skip("ccc c", 0, BEGINNING)
    assert (index, reading.in_word) == (5, True)


def test_an_empty_phrase_is_refused() -> None:
    with pytest.raises(ValueError, match="phrase 2"):
        PhraseAutomaton(["a", " "])


@pytest.mark.parametrize(
    ("char", "symbol"),
    [("É", "e"), ("ﬁ", "fi"), ("Ａ", "a"), ("а", "a"), ("\u200b", ""), ("\u3000", " "), ("ß", "ss")],
)
def test_comparable(char: str, symbol: str) -> None:
    assert comparable(char) == symbol


def test_what_a_judge_reads() -> None:
    assert normal_form("Ｉg\u200bno\u00adre \u202e!") == "Ignore !"
    assert fold_confusables("Іgnоrе résumé") == "Ignore resume"
    assert hidden_tag_text("a" + chr(0xE0068) + chr(0xE0069)) == "hi"
    assert hidden_tag_text("plain") == ""
