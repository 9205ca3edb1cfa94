"""Placeholders back to the values they stand for, in a text that comes in pieces.

Owns the few characters that may be the beginning of a placeholder. A placeholder is `<PERSON_1>`; a model
that drops the angle brackets, or writes it like a name (`Person_1`, in JSON above all), still means it: these
count too, as whole words. `person_1` doesn't: in code a model chooses such names itself. The input guardrails
chose numbers that no such word of the prompt has, so nothing else can be meant.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from typing import NamedTuple

_WORD = re.compile(r"<(\w+)>|(?<!\w)(\w+)(?!\w)")
"""Whatever may be a placeholder. Which words are is looked up: a request may have thousands of them."""


class Piece(NamedTuple):
    text: str
    restored: bool
    """True: a value of the user's own, put back in."""


class Restorer:
    def __init__(self, values: Mapping[str, str]) -> None:
        """`values` maps placeholder, brackets included, to the original text."""
        self._values = {
            spelled: value
            for name, value in values.items()
            for spelled in (name.strip("<>"), name.strip("<>").capitalize(), name.strip("<>").title())
        }
        self._names = sorted(self._values)
        self._longest = 1 + max(map(len, self._names), default=0)
        self._before = ""
        self._held = ""

    @property
    def held_chars(self) -> int:
        return len(self._held)

    def push(self, text: str) -> list[Piece]:
        if not self._names:
            return [Piece(text, restored=False)] if text else []
        buffer = self._held + text
        return self._release(buffer, self._first_undecided(buffer))

    def flush(self) -> list[Piece]:
        return self._release(self._held, len(self._held))

    def _first_undecided(self, buffer: str) -> int:
        """Index from which on `buffer` may still become a placeholder."""
        for index in range(max(0, len(buffer) - self._longest), len(buffer)):
            if (buffer[index] == "<" or self._at_word(buffer, index)) and self._may_begin(buffer[index:]):
                return index
        return len(buffer)

    def _may_begin(self, tail: str) -> bool:
        """A whole name too: bracket or word, it is only sure when the next character is there."""
        word = tail.removeprefix("<")
        place = bisect_left(self._names, word)
        return place < len(self._names) and self._names[place].startswith(word)

    def _at_word(self, buffer: str, index: int) -> bool:
        before = buffer[index - 1] if index else self._before
        return not (before.isalnum() or before == "_")

    def _release(self, buffer: str, end: int) -> list[Piece]:
        """`buffer` up to `end`, values put in; the rest is held."""
        pieces: list[Piece] = []
        seen = 0
        subject = self._before + buffer  # the look-behind needs what was there
        shift = len(self._before)
        for match in _WORD.finditer(subject, shift) if self._names else ():
            start, stop = match.start() - shift, match.end() - shift
            if stop > end:
                break
            value = self._values.get(match[1] or match[2])
            if value is None:
                continue
            if start > seen:
                pieces.append(Piece(buffer[seen:start], restored=False))
            pieces.append(Piece(value, restored=True))
            seen = stop
        if end > seen:
            pieces.append(Piece(buffer[seen:end], restored=False))
        self._before = buffer[end - 1 : end] or self._before
        self._held = buffer[end:]
        return pieces
