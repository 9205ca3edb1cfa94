"""Masking: the same value the same placeholder, nothing confused, everything comes back."""

from __future__ import annotations

import re
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from baton_input_guardrails.masking import Masker
from baton_input_guardrails.personal_data import Span, cut, without_overlaps
from baton_output_guardrails.deny import DenyRules
from baton_output_guardrails.stream_filter import StreamFilter


def restore(text: str, values: dict[str, str]) -> str:
    stream = StreamFilter(values, DenyRules(secrets=()))
    return stream.push(text) + stream.flush()


def spans_of(text: str, *values: str, entity: str = "PERSON") -> list[Span]:
    return [Span(text.index(value), text.index(value) + len(value), entity, 1.0) for value in values]


@st.composite
def texts_with_spans(draw: st.DrawFn) -> tuple[str, list[Span]]:
    piece = st.one_of(
        st.text(max_size=8),
        st.sampled_from(["<PERSON_1>", "PERSON_1", "<PERSON_2", ">", "<", "PERSON_3", "X_PERSON_4", " "]),
    )
    text = ""
    spans: list[Span] = []
    for _ in range(draw(st.integers(0, 6))):
        text += draw(piece)
        value = draw(
            st.one_of(st.text(min_size=1, max_size=10), st.sampled_from(["PERSON_1", "Ann", 'Bob\n"x']))
        )
        if draw(st.booleans()):
            spans.append(Span(len(text), len(text) + len(value), "PERSON", 0.85))
        text += value
    return text + draw(piece), spans


@settings(max_examples=1000, deadline=None)
@given(texts_with_spans())
def test_restore_of_mask_is_the_text(case: tuple[str, list[Span]]) -> None:
    text, spans = case
    masker = Masker([text])
    masker.learn(text, spans)
    assert restore(masker.mask(text, spans), masker.values) == text


def test_the_same_value_has_one_placeholder_in_all_texts() -> None:
    first, second = "I am Ann Lee.", "Ann Lee and Bob Ray"
    masker = Masker([first, second])
    masker.learn(first, spans_of(first, "Ann Lee"))
    masker.learn(second, spans_of(second, "Ann Lee", "Bob Ray"))
    assert masker.mask(first, spans_of(first, "Ann Lee")) == "I am <PERSON_1>."
    assert masker.mask(second, spans_of(second, "Ann Lee", "Bob Ray")) == "<PERSON_1> and <PERSON_2>"
    assert masker.values == {"<PERSON_1>": "Ann Lee", "<PERSON_2>": "Bob Ray"}
    assert masker.counts == {"PERSON": 2}


def test_a_known_value_is_masked_where_the_recogniser_missed_it() -> None:
    first, second = "I am Ann Lee.", "ann or Ann Lee? Joann Lee."
    masker = Masker([first, second])
    masker.learn(first, spans_of(first, "Ann Lee"))
    assert masker.mask(second, []) == "ann or <PERSON_1>? Joann Lee."


def test_many_values_are_masked_in_linear_time() -> None:
    values = [f"a{number}@b.example" for number in range(10_000)]
    text = " ".join(values)
    masker = Masker([text])
    masker.learn(
        text, [Span(one.start(), one.end(), "EMAIL_ADDRESS", 1.0) for one in re.finditer(r"\S+", text)]
    )
    begun = time.process_time()
    assert masker.mask("Ask xa7@b.example, a7@b.example or a9999@b.example!", []) == (
        "Ask xa7@b.example, <EMAIL_ADDRESS_8> or <EMAIL_ADDRESS_10000>!"
    )
    assert masker.mask(text, []).split() == [f"<EMAIL_ADDRESS_{number}>" for number in range(1, 10_001)]
    assert time.process_time() - begun < 1


def test_of_known_values_that_begin_alike_the_longest_whole_word_is_taken() -> None:
    learned = "Ann Lee, Ann"
    masker = Masker([learned])
    masker.learn(learned, [Span(0, 7, "PERSON", 1.0), Span(9, 12, "PERSON", 1.0)])
    assert masker.mask("Ann Lees, Ann Lee, Anna.", []) == "<PERSON_2> Lees, <PERSON_1>, Anna."


def test_a_placeholder_that_the_user_wrote_is_left_alone() -> None:
    text = "What does <PERSON_1>, PERSON_2 or Person_3 mean? I am Ann."
    masker = Masker([text])
    masker.learn(text, spans_of(text, "Ann"))
    masked = masker.mask(text, spans_of(text, "Ann"))
    assert masked == "What does <PERSON_1>, PERSON_2 or Person_3 mean? I am <PERSON_4>."
    assert restore(masked, masker.values) == text


def test_overlaps_leave_the_surest_span() -> None:
    spans = [Span(0, 5, "A", 0.4), Span(3, 9, "B", 0.9), Span(9, 12, "C", 0.4), Span(8, 10, "D", 0.5)]
    assert without_overlaps(spans) == [Span(3, 9, "B", 0.9), Span(9, 12, "C", 0.4)]


@given(st.text(alphabet="ab \n.", max_size=30).map(lambda unit: unit * 900))
@settings(max_examples=20, deadline=None)
def test_pieces_are_the_text(text: str) -> None:
    pieces = cut(text)
    assert all(text[start : start + len(piece)] == piece for start, piece in pieces)
    covered = "".join(piece for _, piece in pieces)
    assert text.startswith(covered)
    assert not text[len(covered) :].strip()
    assert all(len(piece) <= 8000 for _, piece in pieces)
