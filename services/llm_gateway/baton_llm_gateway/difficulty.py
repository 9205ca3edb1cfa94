"""How likely a question is too hard for the small model: logistic regression over what its wording shows.

Decides for `auto` only what the rules of model_choice.py leave open. Pure. The weights are data, made and
measured by `python -m bench.auto_route`; for English: of other alphabets it says nothing.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

HARD_FROM = 0.5
READ_CHARACTERS = 600
"""A longer question is the large model's by a rule, as the settings come."""
_LAST_LATIN_LETTER = "\u024f"

_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_NUMBER = re.compile(r"\d+")
_SENTENCE = re.compile(r"[.!?;](?:\s|$)")
_PATTERNS: Mapping[str, re.Pattern[str]] = {
    name: re.compile(pattern)
    for name, pattern in {
        "asks for one fact": r"\b(?:who|when|where|which)\b|\bhow (?:many|much|long|old|tall|often)\b",
        "what is": r"^\W*what(?:'s| is| are| does| do)\b",
        "yes or no": r"^\W*(?:is|are|do|does|did|can|may|was|were)\b",
        "why": r"\bwhy\b",
        "how would or could": r"\bhow (?:would|could|should|might|can|does)\b",
        "should": r"\b(?:should|ought|would|might|could)\b",
        "conditions": r"\b(?:if|unless|given|although|though|while|since|because|so that"
        r"|without|except|until)\b",
        "contrast": r"\b(?:but|rather|than|both|either|neither|differ\w*|versus|against|opposite)\b",
        "works on it": r"\b(?:plan|draft|compose|organise|organize|estimate|argue|discuss|solve"
        r"|show that|work out|arrange|schedule|convince|weigh|retell"
        r"|integrate|draw up|lay out|prepare|set up|suggest)\b",
        "writes": r"\b(?:write|rewrite|describe|make|produce)\b",
        "little task": r"\b(?:tell me|name|list|spell\w*|translate|say|joke|synonym"
        r"|plural|rhymes?|word|define)\b",
        "talk": r"\b(?:hi|hello|hey|thanks?|thank you|please|good (?:morning|night|evening)|sorry)\b",
        "own case": r"\b(?:my|our|we|us)\b",
        "extent": r"\b(?:all|every|each|nobody|exactly|at least|no more than|everybody|both|only|never)\b",
    }.items()
}
_ABSTRACT = re.compile(r"\b\w+(?:tion|ity|ness|ism|ence|ance|ment|ship|dom)s?\b")


@dataclass(frozen=True)
class Rating:
    probability: float
    """That it is hard."""
    why: str
    """What weighed most towards what was decided."""

    @property
    def is_hard(self) -> bool:
        return self.probability >= HARD_FROM


@dataclass(frozen=True)
class Difficulty:
    """`weights` by the names of `features`."""

    bias: float
    weights: Mapping[str, float]

    def rate(self, question: str) -> Rating | None:
        """None: nothing in it that we could read."""
        found = features(question)
        if found is None:
            return None
        shares = {name: self.weights[name] * value for name, value in found.items()}
        score = self.bias + sum(shares.values())
        probability = 1 / (1 + math.exp(-max(-30.0, min(30.0, score))))
        sign = 1 if probability >= HARD_FROM else -1
        telling = sorted(
            (name for name in shares if sign * shares[name] > 0), key=lambda n: -sign * shares[n]
        )
        return Rating(probability, ", ".join(telling[:2]) or "nothing in particular")


def features(question: str) -> dict[str, float] | None:
    """Numbers around 0 to 3, by names that people can read."""
    text = question[:READ_CHARACTERS].lower()
    if not text.isascii() and any(char.isalpha() and char > _LAST_LATIN_LETTER for char in text):
        return None
    words = _WORD.findall(text)
    if not words:
        return None
    count = len(words)
    found = {
        "length": math.log2(1 + count) / 2,
        "words a sentence": count / max(1, len(_SENTENCE.findall(text))) / 10,
        "commas": min(4, text.count(",") + text.count(":")) / 2,
        "numbers": min(4, len(_NUMBER.findall(text))) / 2,
        "long words": sum(len(word) >= 7 for word in words) / 4,
        "word length": sum(map(len, words)) / count / 4,
        "abstract words": min(4, len(_ABSTRACT.findall(text))) / 2,
        "several things": min(4, (words.count("and") + words.count("or"))) / 2,
    }
    for name, pattern in _PATTERNS.items():
        found[name] = float(bool(pattern.search(text)))
    return found


@cache
def shipped() -> Difficulty:
    """The one whose weights are in the package."""
    data = json.loads(
        resources.files("baton_llm_gateway").joinpath("difficulty.json").read_text(encoding="utf-8")
    )
    return Difficulty(
        float(data["bias"]), {str(name): float(value) for name, value in data["weights"].items()}
    )
