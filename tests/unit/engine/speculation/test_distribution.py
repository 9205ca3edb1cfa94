"""Sampled tokens keep the model's distribution, whatever is guessed: chi-square tests."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from baton_engine import SamplingParams
from baton_engine.request import Request
from baton_engine.speculation.drafting import Patience
from tests.support.drafters import guess_with
from tests.support.engine_driver import add, ask, drain, token_ids
from tests.support.tiny_model import tiny_engine

PROBABILITIES = [0.4, 0.25, 0.15, 0.1, 0.06, 0.04]
ANSWERS, TOKENS = 40, 150
CRITICAL = {5: 20.515, 35: 66.619}  # passed by chance once in a thousand times, by degrees of freedom


@pytest.mark.parametrize("guessed", [0, 3, 5])
def test_chi_square(guessed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every guess is the same token, of probability 0.4, 0.1 or 0.04: it comes no more often, and no less."""
    monkeypatch.setattr(Patience, "learn", lambda *_: None)  # goes on guessing, however often it fails
    engine = tiny_engine(num_blocks=128, max_num_batched_tokens=128)
    speculation = guess_with(engine, lambda request, num_tokens: [guessed] * num_tokens, num_tokens=3)
    run = engine.core.runner.run

    def known(plan: Any) -> torch.Tensor:
        logits = torch.full_like(run(plan), -torch.inf)
        logits[:, : len(PROBABILITIES)] = torch.tensor(PROBABILITIES).log()
        return logits

    engine.core.runner.run = known  # type: ignore[method-assign]
    for index in range(ANSWERS):
        sampling = SamplingParams(max_tokens=TOKENS, temperature=1.0, seed=index, ignore_eos=True)
        add(engine, ask(f"r{index}", [1, 2, 3], sampling))
    answers = drain(engine)
    tokens = [token_ids(deltas) for deltas in answers.values()]
    accepted = speculation.stats().num_accepted_tokens
    assert accepted > 100
    # Single tokens, and pairs of neighbours: a token must not depend on whether the one before was guessed.
    singles = Counter(token for answer in tokens for token in answer)
    assert chi_square(singles, dict(enumerate(PROBABILITIES))) < CRITICAL[5]
    pairs = Counter(pair for answer in tokens for pair in zip(answer[::2], answer[1::2], strict=True))
    expected = {(a, b): p * q for a, p in enumerate(PROBABILITIES) for b, q in enumerate(PROBABILITIES)}
    assert chi_square(pairs, expected) < CRITICAL[35]


def chi_square(counts: Counter[Any], probabilities: dict[Any, float]) -> float:
    assert set(counts) <= set(probabilities)
    total = counts.total()
    return sum((counts[one] - total * p) ** 2 / (total * p) for one, p in probabilities.items())


def test_a_test_that_would_notice() -> None:
    """Counts from accepting every guess with its own probability twice over fail it."""
    skewed = Counter({0: 2_700, 1: 1_400, 2: 800, 3: 550, 4: 330, 5: 220})
    assert chi_square(skewed, dict(enumerate(PROBABILITIES))) > CRITICAL[5]


def test_guesses_do_not_change_a_seeded_draw() -> None:
    def answer(guess: Any) -> list[int]:
        engine = tiny_engine()
        if guess is not None:
            guess_with(engine, guess)
        add(
            engine,
            ask("a", [1, 2, 3], SamplingParams(max_tokens=40, temperature=1.5, seed=3, ignore_eos=True)),
        )
        return token_ids(drain(engine)["a"])

    plain = answer(None)

    def often_right(request: Request, num_tokens: int) -> list[int]:
        at = request.num_answer_tokens
        return [
            token if place % 3 else 0 for place, token in enumerate(plain[at : at + num_tokens], start=at)
        ]

    assert answer(often_right) == plain
