"""How one request wants its tokens chosen and when it ends. Owns the bounds; knows no vocabulary.

Rules where APIs differ:
- temperature 0 is greedy: the exact argmax of the row; top_k, top_p, min_p and seed then have no effect.
- top_k 0 or -1, or over the vocabulary: off.  top_p 0: only the most likely token is left.  min_p 0: off.
- min_tokens: no stop of any kind (end token, stop ids, stop strings) ends the answer before that many tokens.
- max_tokens None: whatever fits the context.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from baton_engine.errors import InvalidParameter

MAX_STOP_STRINGS = 64
SEED_LIMIT = 2**63


@dataclass(frozen=True)
class SamplingParams:
    """Raises InvalidParameter from the constructor, naming the field."""

    max_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    min_tokens: int = 0

    def __post_init__(self) -> None:
        stop: object = self.stop
        object.__setattr__(self, "stop", (stop,) if isinstance(stop, str) else tuple(self.stop))
        object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids))
        self._check_lengths()
        self._check_distribution()
        self._check_stops()

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    def _check_lengths(self) -> None:
        if self.max_tokens is not None:
            _require(
                _is_int(self.max_tokens) and self.max_tokens >= 1,
                "max_tokens",
                self.max_tokens,
                "an integer of at least 1",
            )
        _require(
            _is_int(self.min_tokens) and self.min_tokens >= 0,
            "min_tokens",
            self.min_tokens,
            "an integer of at least 0",
        )
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidParameter(
                "min_tokens", f"min_tokens ({self.min_tokens}) is over max_tokens ({self.max_tokens})."
            )

    def _check_distribution(self) -> None:
        _require(
            _is_finite(self.temperature) and self.temperature >= 0,
            "temperature",
            self.temperature,
            "a number of at least 0",
        )
        _require(_is_finite(self.top_p) and 0 <= self.top_p <= 1, "top_p", self.top_p, "a number from 0 to 1")
        _require(_is_finite(self.min_p) and 0 <= self.min_p <= 1, "min_p", self.min_p, "a number from 0 to 1")
        _require(_is_int(self.top_k) and self.top_k >= -1, "top_k", self.top_k, "an integer of at least -1")
        if self.seed is not None:
            in_range = _is_int(self.seed) and -SEED_LIMIT <= self.seed < SEED_LIMIT
            _require(in_range, "seed", self.seed, "a 64-bit signed integer")

    def _check_stops(self) -> None:
        _require(
            len(self.stop) <= MAX_STOP_STRINGS, "stop", len(self.stop), f"at most {MAX_STOP_STRINGS} strings"
        )
        for text in self.stop:
            _require(text != "", "stop", text, "made of non-empty strings")
        for token_id in self.stop_token_ids:
            _require(_is_int(token_id), "stop_token_ids", token_id, "made of integers")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _require(holds: bool, param: str, value: object, rule: str) -> None:
    if not holds:
        raise InvalidParameter(param, f"{param} is {value!r}; it must be {rule}.")
