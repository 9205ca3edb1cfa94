"""E16: penalties, min_p, bias and all other rules with speculation on give what they give without it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from baton_engine import NgramSpeculation, SamplingParams
from tests.support.drafters import guess_with, knowing
from tests.support.engine_driver import add, ask, drain, token_ids
from tests.support.tiny_model import tiny_engine

PLAIN = SamplingParams(max_tokens=40, temperature=0, ignore_eos=True)
SAMPLED = replace(PLAIN, temperature=0.8, seed=5)
RULES = {
    "repetition": replace(PLAIN, repetition_penalty=1.3),
    "frequency": replace(PLAIN, frequency_penalty=1.5),
    "presence": replace(PLAIN, presence_penalty=1.5),
    "all penalties, sampled": replace(
        SAMPLED, repetition_penalty=1.1, frequency_penalty=0.5, presence_penalty=0.5
    ),
    "min_p": replace(SAMPLED, min_p=0.2),
    "top_k and top_p": replace(SAMPLED, top_k=20, top_p=0.8),
    "bias": replace(PLAIN, logit_bias={40: 3.0, 41: 2.5, 42: -100.0}),
    "bad words": replace(PLAIN, bad_words=("Y", "la"), logit_bias={ord("l"): 3.0, ord("a"): 3.0}),
    "allowed ids": replace(SAMPLED, allowed_token_ids=tuple(range(60, 70))),
    "min_tokens": replace(PLAIN, min_tokens=12, stop_token_ids=tuple(range(200))),
}
PROMPT = [*range(20, 40), *range(20, 40)]


@pytest.mark.parametrize("rule", RULES)
def test_as_without_speculation(rule: str) -> None:
    sampling = RULES[rule]
    plain = tiny_engine()
    add(plain, ask("a", PROMPT, sampling))
    expected = token_ids(drain(plain)["a"])
    free = PLAIN if sampling.greedy else SAMPLED
    add(plain, ask("free", PROMPT, free))
    assert token_ids(drain(plain)["free"]) != expected, "the rule has no effect here: the case shows nothing"
    for wrong_every in (0, 2, 5):
        engine = tiny_engine()
        speculation = guess_with(engine, knowing({"a.0": expected}, wrong_every))
        add(engine, ask("a", PROMPT, sampling))
        assert token_ids(drain(engine)["a"]) == expected
        assert speculation.stats().num_accepted_tokens > 0
    engine = tiny_engine(speculation=NgramSpeculation())
    add(engine, ask("a", PROMPT, sampling))
    assert token_ids(drain(engine)["a"]) == expected


def test_a_penalty_sees_the_guesses_before_it() -> None:
    """All guesses are the token that would win without penalties; with them it takes turns with another."""
    engine = tiny_engine()
    sampling = replace(PLAIN, max_tokens=8, logit_bias={70: 50.0, 71: 48.0}, presence_penalty=2.0)
    sampling = replace(sampling, frequency_penalty=2.0)
    guess_with(engine, lambda request, num_tokens: [70] * num_tokens)
    add(engine, ask("a", PROMPT, sampling))
    guessed = token_ids(drain(engine)["a"])
    plain = tiny_engine()
    add(plain, ask("a", PROMPT, sampling))
    assert guessed == token_ids(drain(plain)["a"])
    assert set(guessed) == {70, 71}
