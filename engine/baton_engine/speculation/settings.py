"""How an engine shall guess tokens. Owns the values and their bounds; knows no model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from baton_engine.errors import ConfigError

MOST_DRAFT_TOKENS = 32


@dataclass(frozen=True)
class NgramSpeculation:
    """Guess that the text goes on as it did after the last place where it read like now.

    num_tokens: most tokens guessed for one request in one step. min_match, max_match: how many tokens must
    have been the same there, and how many are looked at to choose among places.
    max_step_tokens: what the running requests' own tokens and all guesses may come to in a step; shared out
    evenly. With more than max_running requests nothing is guessed. A step is nearly free up to some tokens
    (its time goes into reading the weights), beyond that wrong guesses cost the others: performance log.
    """

    num_tokens: int = 16
    min_match: int = 2
    max_match: int = 16
    max_step_tokens: int = 16
    max_running: int = 8

    def __post_init__(self) -> None:
        _check(self.num_tokens, self.max_step_tokens, self.max_running)
        if not 1 <= self.min_match <= self.max_match:
            raise ConfigError(
                f"speculation: min_match is {self.min_match} and max_match {self.max_match}; "
                "min_match must be at least 1, max_match no less than min_match."
            )


@dataclass(frozen=True)
class DraftSpeculation:
    """Let a small model of the same vocabulary (a folder or .gguf file) guess.

    num_tokens, max_step_tokens and max_running as for NgramSpeculation. It runs with the engine's dtype,
    backend and quantization, and with a KV pool of its own of as many blocks as the model's.
    """

    model: Path
    num_tokens: int = 4
    max_step_tokens: int = 16
    max_running: int = 8

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", Path(self.model))
        _check(self.num_tokens, self.max_step_tokens, self.max_running)


SpeculationSettings = NgramSpeculation | DraftSpeculation


def _check(num_tokens: int, max_step_tokens: int, max_running: int) -> None:
    if not 1 <= num_tokens <= MOST_DRAFT_TOKENS:
        raise ConfigError(f"speculation: num_tokens is {num_tokens}; use 1 to {MOST_DRAFT_TOKENS}.")
    for name, value, least in (("max_step_tokens", max_step_tokens, 2), ("max_running", max_running, 1)):
        if value < least:
            raise ConfigError(f"speculation: {name} is {value}; it must be at least {least}.")
