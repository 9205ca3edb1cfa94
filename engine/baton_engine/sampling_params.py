"""How one request wants its tokens chosen and when it ends. Owns the bounds; knows no vocabulary.

Rules where APIs differ:
- temperature 0 is greedy: the exact argmax of the row; top_k, top_p, min_p and seed then have no effect.
- top_k 0 or -1, or over the vocabulary: off.  top_p 0: only the most likely token is left.  min_p 0: off.
- min_tokens: no stop of any kind (end token, stop ids, stop strings) ends the answer before that many tokens.
- max_tokens None: whatever fits the context.
- bad_words: matched within the answer, as the tokenizer spells them with and without a space in front.
- repetition_penalty looks at prompt and answer; presence_penalty and frequency_penalty at the answer only.
- include_stop_str_in_output: a stop string that ends the answer is shown; end and stop tokens never are.
- skip_special_tokens False: control tokens inside the answer are shown as their text.
- n: that many answers to one prompt. The first has the seed as given, the others seeds derived from it.
- structured: comes before all other rules; if they leave no token that it allows, the request fails. The
  answer ends where the structure does, whatever min_tokens and ignore_eos say.
- logprobs: of the model itself, before everything on this page. 0 gives the chosen token's alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from baton_engine.errors import InvalidParameter
from baton_engine.structured.output import StructuredOutput

MAX_STOP_STRINGS = 64
MAX_CHOICES = 64
MAX_BAD_WORDS = 1_024
MAX_LOGPROBS = 20
MAX_BIAS = 100.0
MAX_PENALTY = 2.0
SEED_LIMIT = 2**63


@dataclass(frozen=True)
class SamplingParams:
    """Raises InvalidParameter from the constructor, naming the field.

    logit_bias is token id → number added to its logit. logprobs and prompt_logprobs are the number of most
    likely tokens to report beside each token of the answer and of the prompt; None reports nothing.
    """

    max_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    min_tokens: int = 0
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[str, ...] = ()
    logit_bias: Mapping[int, float] = field(default_factory=dict[int, float])
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    n: int = 1
    structured: StructuredOutput | None = None

    def __post_init__(self) -> None:
        stop: object = self.stop
        object.__setattr__(self, "stop", (stop,) if isinstance(stop, str) else tuple(self.stop))
        object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids))
        if self.allowed_token_ids is not None:
            object.__setattr__(self, "allowed_token_ids", tuple(self.allowed_token_ids))
        bad_words: object = self.bad_words
        object.__setattr__(
            self, "bad_words", (bad_words,) if isinstance(bad_words, str) else tuple(self.bad_words)
        )
        object.__setattr__(self, "logit_bias", dict(self.logit_bias))
        self._check_lengths()
        self._check_distribution()
        self._check_stops()
        self._check_rules()
        self._check_penalties()
        self._check_logprobs()

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    @cached_property
    def penalises(self) -> bool:
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0

    @cached_property
    def edits_logits(self) -> bool:
        """False: the row's logits go into the choice as the model gave them."""
        rules = (self.allowed_token_ids, self.bad_words, self.min_tokens, self.logit_bias, self.penalises)
        return self.structured is not None or any(bool(rule) for rule in rules)

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
        _require(_is_int(self.n) and 1 <= self.n <= MAX_CHOICES, "n", self.n, f"from 1 to {MAX_CHOICES}")
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

    def _check_rules(self) -> None:
        if self.allowed_token_ids is not None:
            allowed = self.allowed_token_ids
            _require(len(allowed) > 0, "allowed_token_ids", allowed, "left out, or hold at least one id")
            for token_id in allowed:
                _require(_is_int(token_id), "allowed_token_ids", token_id, "made of integers")
        num_words = len(self.bad_words)
        _require(num_words <= MAX_BAD_WORDS, "bad_words", num_words, f"at most {MAX_BAD_WORDS} words")
        for word in self.bad_words:
            _require(word.strip() != "", "bad_words", word, "made of words")
        for token_id, bias in self.logit_bias.items():
            _require(_is_int(token_id), "logit_bias", token_id, "a map from integers")
            in_range = _is_finite(bias) and abs(bias) <= MAX_BIAS
            _require(in_range, "logit_bias", bias, f"a map to numbers from {-MAX_BIAS:g} to {MAX_BIAS:g}")

    def _check_penalties(self) -> None:
        repetition = self.repetition_penalty
        _require(
            _is_finite(repetition) and repetition > 0, "repetition_penalty", repetition, "a number over 0"
        )
        for name in ("presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            in_range = _is_finite(value) and abs(value) <= MAX_PENALTY
            _require(in_range, name, value, f"a number from {-MAX_PENALTY:g} to {MAX_PENALTY:g}")

    def _check_logprobs(self) -> None:
        for name in ("logprobs", "prompt_logprobs"):
            value = getattr(self, name)
            if value is not None:
                in_range = _is_int(value) and 0 <= value <= MAX_LOGPROBS
                _require(in_range, name, value, f"an integer from 0 to {MAX_LOGPROBS}")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _require(holds: bool, param: str, value: object, rule: str) -> None:
    if not holds:
        raise InvalidParameter(param, f"{param} is {value!r}; it must be {rule}.")
