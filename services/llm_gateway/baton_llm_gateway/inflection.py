"""English words without their endings of grammar: cars, car; caring, cares, care; ran stays ran. Pure.

The steps 0, 1 and 5 of the Porter2 stemmer (M. Porter, snowballstem.org/algorithms/english/stemmer.html). Its
steps 2 to 4 are left out: they make one word of universe and university, import and important, and a word
taken for another is worse here than one not known again.
"""

from __future__ import annotations

import re

_VOWELS = "aeiouy"
_SHORT_END = re.compile(r"(?:[^aeiouy][aeiouy][^aeiouywx]|^[aeiouy][^aeiouy])$")
"""A short syllable at the end: `car`, `us`; not `boil`, `chang`."""
_DOUBLE_END = re.compile(r"(?:bb|dd|ff|gg|mm|nn|pp|rr|tt)$")
_HAS_VOWEL = re.compile(r"[aeiouy]")
_AS_THEY_ARE = (
    "news goods arms customs glasses means united species series"
    " andes atlas bias cosmos herring earring inning outing canning"
)
_ITS_OWN = {"dying": "die", "lying": "lie", "tying": "tie"} | {word: word for word in _AS_THEY_ARE.split()}
"""Whose ending is none, or makes another word of them."""


def root_of(word: str) -> str:
    """`word` is in small letters, without anything that is no letter."""
    if len(word) < 3 or word in _ITS_OWN:
        return _ITS_OWN.get(word, word)
    return _without_e(_with_i(_without_past(_singular(word))))


def _singular(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith(("ies", "ied")):
        return word[:-2] if len(word) > 4 else word[:-1]
    if word.endswith("s") and not word.endswith(("us", "ss")) and _HAS_VOWEL.search(word[:-2]):
        return word[:-1]
    return word


def _without_past(word: str) -> str:
    """And without `ing`."""
    if word.endswith("eed"):
        return word[:-1] if len(word) - 3 >= _region(word) else word
    ending = next((each for each in ("ing", "ed") if word.endswith(each)), "")
    stem = word.removesuffix(ending)
    if not ending or not _HAS_VOWEL.search(stem):
        return word
    if stem.endswith(("at", "bl", "iz")):
        return stem + "e"
    if _DOUBLE_END.search(stem) and len(stem) > 3:
        return stem[:-1]
    return stem + "e" if _region(stem) >= len(stem) and _SHORT_END.search(stem) else stem


def _with_i(word: str) -> str:
    """Of a y behind a consonant: cry and cries."""
    return word[:-1] + "i" if len(word) > 2 and word[-1] == "y" and word[-2] not in _VOWELS else word


def _without_e(word: str) -> str:
    """One that says nothing: change and changing. That of care says that it isn't a car."""
    if not word.endswith("e"):
        return word
    stem, first = word[:-1], _region(word)
    is_in_second = len(stem) >= first + _region(word[first:])
    return stem if is_in_second or (len(stem) >= first and not _SHORT_END.search(stem)) else word


def _region(word: str) -> int:
    """Where what follows the first vowel and its consonant begins; at the end if nothing does."""
    found = re.search(r"[aeiouy][^aeiouy]", word)
    return found.end() if found else len(word)
