"""How much of what is only guessed is reserved."""

from __future__ import annotations

import pytest

from baton_common.money import Price
from baton_edge_api.limits.wish import Wish, fitted

PRICE = Price(input=2, cached_input=1, output=5)


@pytest.mark.parametrize(
    ("tokens_left", "picos_left", "prompt", "output"),
    [
        (None, None, 10 + 30, 20),
        (60, None, 10 + 30, 20),
        (45, None, 10 + 15, 20),
        (30, None, 10, 20),
        (5, None, 10, 20),  # what was asked for stays: it is refused
        (None, 180, 10 + 30, 20),
        (None, 141, 10 + 10, 20),  # 20 + 100 picos for what was asked for, 2 a token that is added
        (45, 141, 10 + 10, 20),
    ],
)
def test_what_is_added_is_bounded_by_what_is_left(
    tokens_left: int | None, picos_left: int | None, prompt: int, output: int
) -> None:
    wish = Wish(10, 20, PRICE, num_added_tokens=30)
    assert fitted(wish, tokens_left, picos_left) == Wish(prompt, output, PRICE)


def test_a_guessed_answer_comes_before_what_is_added() -> None:
    wish = Wish(10, 20, PRICE, may_shrink=True, num_added_tokens=30)
    assert fitted(wish, 40, None) == Wish(20, 20, PRICE, may_shrink=True)
    assert fitted(wish, 15, None) == Wish(10, 5, PRICE, may_shrink=True)
    assert fitted(wish, 0, None) == Wish(10, 1, PRICE, may_shrink=True)
