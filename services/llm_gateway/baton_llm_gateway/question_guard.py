"""Whether two questions that an embedder finds alike may share an answer: by their words. Pure; English.

A vector hardly knows that 12 is not 13, that `not` turns a question round, or who bit whom. So what
carries the meaning has to be the same on both sides, in the same order: names, figures, negations, and
every other word but those that only phrase a question. What is left to the vectors is the phrasing.

5, five                  a figure, each its own
not, n't, never          a negation; `without` too
<PERSON_1>, os.path, C++ as written, but for upper and lower case; the A of blood type A too
(2+3)*4, .5, 5!, ??, 😀   signs, each its own; not what ends a question or a clause
ships, shipping          one word: endings of grammar go (inflection.py)
please tell me, the, of  nothing: phrasing
why, did, will, can, …   what is asked for, of which time and whether it is allowed: the same on both sides

Knows nothing of caches. A wrong no costs a call, a wrong yes gives a wrong answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from baton_llm_gateway.inflection import root_of

_TOKEN = re.compile(
    r"<[a-z]+_\d+>"
    r"|[^\W_]+(?:[._:/@#+'-]+[^\W_]+)*[+#%]*"
    r"|_+|[^\w\s.,;:!?\"'…“”„«»]"  # signs: (2+3)*4 is not 2+3*4
    r"|\.(?=\d)|(?<=\d)[!\"']"  # .5, 5!, 5'
    r"|[!?]++(?=\s*\S)|(?<!\S)[.,;:\"'…]++(?=\s+\S)",  # not those that end a question or a clause
    re.IGNORECASE,
)
_POLITE = re.compile(
    r"[\s\"'“„«]*(?:\b(?:please|hi|hello|hey|thanks|kindly|(?:can|could|would|will) you|do you know"
    r"|i (?:want|need|would like)(?: to know)?|i'd like(?: to know)?|let me know|tell me|show me|give me"
    r"|explain(?: to me)?|describe|define)\b[.,;:!?…]*(?:\s+|$))+",
    re.IGNORECASE,
)
"""At the beginning only: further on these words mean something."""
_HOW_ONE_DOES = re.compile(
    r"\bhow(?: (?:do|can|could|should|would) (?:i|we|one)| to| does one)\b", re.IGNORECASE
)
_HAS_TO = re.compile(r"\b(have|has|had|having) to\b", re.IGNORECASE)
"""What one has to do is not what one can do; `had` also tells the time."""
_MADE_INTO = re.compile(r"\bmade into\b", re.IGNORECASE)
"""What flour is made into, and what it is made of."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NEGATIONS = _words("not no never none nobody nothing neither nor without cannot")
_FIGURES = {
    word: str(2 + place)
    for place, word in enumerate(
        (
            *("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
            *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
        )
    )
}
"""From two on: `one` is most often a pronoun."""
_PHRASING = _words(
    "a an the of to into with using as and is are am be been do does has have having it"
    " its this that these those there me what which please just so if really exactly actually also"
)
_ASKED = {
    "who": "who",
    "whom": "who",
    "whose": "whose",
    "when": "when",
    "where": "where",
    "why": "why",
    "how": "how",
    "way": "how",
    "ways": "how",
    "step": "how",
    "steps": "how",
    "was": "past",
    "were": "past",
    "did": "past",
    "had": "past",
    "will": "future",
    "can": "can",
    "could": "can",
    "would": "would",
    "shall": "shall",
}
_YES_OR_NO = _words(
    "is are am do does can could shall would has have should must may might need was were did"
)
_LAST_LATIN_LETTER = "\u024f"


@dataclass(frozen=True)
class Wording:
    """What of a question must be in another one too."""

    words: tuple[str, ...]
    asked: frozenset[str]


def wording(question: str) -> Wording | None:
    """Questions with equal wordings may share an answer. None: never, because nothing in it can be compared:
    another alphabet, or phrasing alone."""
    if any(char.isalpha() and char > _LAST_LATIN_LETTER for char in question):
        return None
    text = question.replace("\u2019", "'")
    polite = _POLITE.match(text)
    text = text[polite.end() :] if polite else text
    text = _MADE_INTO.sub("made become", _HAS_TO.sub(r"\1 must", _HOW_ONE_DOES.sub("how", text)))
    tokens = [
        _plain(token, begins=place == 0 and not polite) for place, token in enumerate(_TOKEN.findall(text))
    ]
    asked = {_ASKED[token] for token in tokens if token in _ASKED}
    if tokens and tokens[0] in _YES_OR_NO:
        asked.add("whether")
        if tokens[0] not in _PHRASING:
            asked.add(tokens[0])
    words = tuple(_root(token) for token in tokens if token not in _PHRASING and token not in _ASKED)
    return Wording(words, frozenset(asked)) if words else None


def _plain(token: str, *, begins: bool) -> str:
    """One spelling. A name in capitals (US, IT, WHO, blood type A) that is phrasing in small letters stays
    so. `begins`: the question, where a single capital is no name."""
    low = token.lower()
    if token.isupper() and (len(token) > 1 or not begins) and (low in _PHRASING or low in _ASKED):
        return token
    if low in _NEGATIONS or low.endswith("n't"):
        return "not"
    return _FIGURES.get(low) or low.split("'")[0]


def _root(word: str) -> str:
    return root_of(word) if word.isalpha() else word
