"""What a request may use at most, or is guessed to, and how much of a guess is reserved. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from baton_common.money import FREE, Price


@dataclass(frozen=True)
class Wish:
    num_prompt_tokens: int
    num_output_tokens: int
    price: Price = FREE
    may_shrink: bool = False
    """The output is a guess: it is bounded by what is left. Otherwise the client asked for it."""
    num_added_tokens: int = 0
    """That the relay is guessed to add to the prompt, of documents and history: bounded likewise."""


def fitted(wish: Wish, tokens_left: int | None, picos_left: int | None) -> Wish:
    """With as much of what is guessed as there is room for; None: not limited. A guess never refuses what
    might fit: one token of output is enough to begin."""
    prompt, output, price = wish.num_prompt_tokens, wish.num_output_tokens, wish.price

    def room(num_output_tokens: int, picos_each: int, most: int) -> int:
        if tokens_left is not None:
            most = min(most, tokens_left - prompt - num_output_tokens)
        if picos_left is not None and picos_each:
            most = min(most, (picos_left - price.at_most(prompt, num_output_tokens)) // picos_each)
        return most

    if wish.may_shrink:
        output = max(1, room(0, price.output, output))
    added = max(0, room(output, price.at_most(1, 0), wish.num_added_tokens))
    return replace(wish, num_prompt_tokens=prompt + added, num_output_tokens=output, num_added_tokens=0)
