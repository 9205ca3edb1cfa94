"""Making a conversation fit: whole turns go, oldest first. Pure.

A turn is a user message with all that follows it up to the next one, so a tool call never loses its result.
System and developer messages stay, and so does the last turn. Tokens are estimated from characters: the
engine counts exactly and refuses what still doesn't fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from baton_contracts.prompt import Message

TOKENS_PER_MESSAGE = 8
"""Role names and marks that a chat template puts around a message."""

PINNED_ROLES = ("system", "developer")


@dataclass(frozen=True)
class Trimmed:
    messages: tuple[Message, ...]
    num_turns: int
    """Turns that were dropped."""


def estimate_tokens(num_characters: int, num_messages: int, characters_per_token: float) -> int:
    return math.ceil(num_characters / characters_per_token) + TOKENS_PER_MESSAGE * num_messages


def split_turns(messages: Sequence[Message]) -> list[list[Message]]:
    """Messages before the first user message are a turn of their own."""
    turns: list[list[Message]] = []
    for message in messages:
        if message.role == "user" or not turns:
            turns.append([])
        turns[-1].append(message)
    return turns


def trim(
    messages: Sequence[Message], budget_tokens: int, characters_per_token: float, extra_characters: int = 0
) -> Trimmed:
    """`extra_characters`: text that will be added later and counts too."""

    def cost(some: Sequence[Message]) -> int:
        return sum(estimate_tokens(message.num_characters, 1, characters_per_token) for message in some)

    total = cost(messages) + estimate_tokens(extra_characters, 0, characters_per_token)
    *older, last = split_turns(messages)
    kept: list[Message] = []
    num_dropped = 0
    for turn in older:
        droppable = [message for message in turn if message.role not in PINNED_ROLES]
        if total > budget_tokens and droppable:
            total -= cost(droppable)
            num_dropped += 1
            kept += [message for message in turn if message.role in PINNED_ROLES]
        else:
            kept += turn
    return Trimmed((*kept, *last), num_dropped)
