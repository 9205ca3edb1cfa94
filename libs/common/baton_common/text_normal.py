"""Text as a judge should see it: one spelling for what looks or reads the same.

For judging only: what goes on to the next stop is always the original text. Owns the tables (invisible
characters, look-alike letters); knows nothing of rules.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_EXTRA_INVISIBLE = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"  # joiners and fillers that draw nothing
    + "".join(map(chr, range(0xFE00, 0xFE10)))  # variation selectors
)
_CONFUSABLES = str.maketrans(
    # Cyrillic, then Greek, then a few Latin letters that no alphabet of a prompt needs.
    "асԁеһіјкӏмоԛрѕтуѵԝхАВСЕНІЈКМОРЅТУХԌѡ" + "αιοκνρτυχεωΑΒΕΖΗΙΚΜΝΟΡΤΥΧ" + "ıɑɡɩʟɴʀʏ",
    "acdehijklmoqpstyvwxABCEHIJKMOPSTYXGw" + "aiokvptuxewABEZHIKMNOPTYX" + "iagilnry",
)
_COMBINING = re.compile("[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+")


@lru_cache(maxsize=8192)
def is_invisible(char: str) -> bool:
    """Zero-width characters, direction controls, soft hyphens, selectors, tags: no ink, no space."""
    return unicodedata.category(char) == "Cf" or char in _EXTRA_INVISIBLE or 0xE0100 <= ord(char) <= 0xE01EF


def normal_form(text: str) -> str:
    """NFKC without invisible characters. ASCII comes back as it is."""
    if text.isascii():
        return text
    normal = unicodedata.normalize("NFKC", text)
    unseen = [char for char in set(normal) if is_invisible(char)]
    return normal.translate(dict.fromkeys(map(ord, unseen))) if unseen else normal


def fold_confusables(text: str) -> str:
    """Cyrillic and Greek letters that look Latin become Latin, and accents go. Only useful beside the
    unfolded text: it ruins honest Russian and Greek."""
    if text.isascii():
        return text
    return _COMBINING.sub("", unicodedata.normalize("NFKD", text.translate(_CONFUSABLES)))


def hidden_tag_text(text: str) -> str:
    """What a text spells in Unicode tag characters, which no screen shows but a model can read."""
    if text.isascii():
        return ""
    return "".join(chr(ord(char) - 0xE0000) for char in text if 0xE0020 <= ord(char) < 0xE007F)


@lru_cache(maxsize=8192)
def comparable(char: str) -> str:
    """One character as phrases are compared: no case, accents, look-alikes or width. A blank for any white
    space, nothing for what can't be seen. May be more than one character (`ﬁ`, `ß`)."""
    if char.isspace():
        return " "
    if is_invisible(char):
        return ""
    decomposed = (
        unicodedata.normalize("NFKD", char.translate(_CONFUSABLES)).casefold().translate(_CONFUSABLES)
    )
    return "".join(part for part in _COMBINING.sub("", decomposed) if not part.isspace())


@lru_cache(maxsize=8192)
def builds_words(char: str) -> bool:
    """Letters and digits of scripts that part words with blanks (not Chinese, Thai, …)."""
    return char.isalnum() and unicodedata.category(char) != "Lo"
