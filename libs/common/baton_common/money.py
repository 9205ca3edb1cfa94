"""Money in whole pico-dollars, and what a model's tokens cost.

A price of USD p per million tokens is p × 10⁶ pico-dollars a token: whole for every price with up to six
decimals, so costs add up exactly and nothing is ever a float. An int64 holds 9.2 million dollars of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from baton_contracts.frames import Usage

PICOS_A_DOLLAR = 10**12
_PICOS_OF_PRICE = 10**6
MAX_PRICE_DOLLARS = 100_000
"""Dearer than this for a million tokens is a slip of the pen."""


class NotMoney(ValueError):
    """The text is no amount; the message says why."""


@dataclass(frozen=True)
class Price:
    """Pico-dollars a token."""

    input: int = 0
    cached_input: int = 0
    output: int = 0

    def cost(self, usage: Usage) -> int:
        """Pico-dollars; prompt tokens whose KV was found in the prefix cache have a price of their own."""
        cached = min(usage.cached_tokens, usage.prompt_tokens)
        fresh = usage.prompt_tokens - cached
        return fresh * self.input + cached * self.cached_input + usage.completion_tokens * self.output

    def at_most(self, num_prompt_tokens: int, num_output_tokens: int) -> int:
        """What so many tokens cost if nothing is found in a cache."""
        return num_prompt_tokens * max(self.input, self.cached_input) + num_output_tokens * self.output


FREE = Price()


def parse_price(text: str) -> int:
    """USD per million tokens, up to six decimals → pico-dollars a token. Raises NotMoney."""
    amount = _decimal(text)
    if amount > MAX_PRICE_DOLLARS:
        raise NotMoney(f"must be at most {MAX_PRICE_DOLLARS} dollars, is {text}")
    picos = amount * _PICOS_OF_PRICE
    if picos != picos.to_integral_value():
        raise NotMoney(f"has more than six decimals: {text}")
    return int(picos)


def parse_dollars(text: str) -> int:
    """`12`, `0.5` or `$3.25` → pico-dollars. Raises NotMoney."""
    picos = _decimal(text.strip().removeprefix("$")) * PICOS_A_DOLLAR
    if picos != picos.to_integral_value() or picos >= 2**63:
        raise NotMoney(f"is no amount of dollars that can be counted: {text}")
    return int(picos)


def dollars(picos: int) -> str:
    """In plain decimals, as many as there are, at least two."""
    whole, rest = divmod(abs(picos), PICOS_A_DOLLAR)
    decimals = f"{rest:012d}".rstrip("0").ljust(2, "0")
    return f"{'-' if picos < 0 else ''}{whole}.{decimals}"


def _decimal(text: str) -> Decimal:
    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise NotMoney(f"is not an amount of dollars: {text!r}") from None
    if not amount.is_finite() or amount < 0:
        raise NotMoney(f"must be an amount of dollars from 0 up, is {text!r}")
    return amount
