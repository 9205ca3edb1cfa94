"""The classifier behind `auto`: its arithmetic, what it reads, and how right the shipped weights are."""

from __future__ import annotations

import math

import pytest

from baton_llm_gateway.difficulty import Difficulty, features, shipped
from bench.auto_route.__main__ import confusion, judge_by_kind, read_questions, trained


def test_a_rating_is_the_logistic_of_weighted_features() -> None:
    weights = dict.fromkeys(features("x") or {}, 0.0) | {"why": 2.0, "numbers": 1.0, "length": -0.5}
    rating = Difficulty(-1.0, weights).rate("Why is 7 odd?")  # three words, one number
    assert rating is not None
    assert rating.probability == pytest.approx(1 / (1 + math.exp(1 - 2 - 0.5 + 0.5)))
    assert (rating.is_hard, rating.why) == (True, "why, numbers")
    assert Difficulty(-9.0, weights).rate("Seven.") is not None


@pytest.mark.parametrize("question", ["", "12 + 3?", "東京の天気は", "Почему небо синее?"])
def test_what_has_no_latin_words_is_not_rated(question: str) -> None:
    assert shipped().rate(question) is None


def test_a_very_long_question_costs_no_more_than_a_long_one() -> None:
    assert features("word " * 120) == features("word " * 100_000)


def test_the_shipped_weights_are_those_of_the_questions_in_the_tree() -> None:
    model, ours = trained(read_questions()), shipped()
    assert ours.bias == pytest.approx(model.bias, abs=1e-3)
    assert ours.weights == pytest.approx(model.weights, abs=1e-3)


def test_kinds_of_questions_that_were_not_seen_are_told_apart() -> None:
    judged = judge_by_kind(read_questions())
    of_classifier = confusion([(question, hard) for question, (hard, _) in judged])
    of_rules = confusion([(question, bool(rule)) for question, (_, rule) in judged])
    assert len(judged) >= 300
    assert of_classifier["accuracy"] >= 0.88  # pyright: ignore[reportOperatorIssue]
    assert of_rules["accuracy"] < 0.6  # pyright: ignore[reportOperatorIssue]
