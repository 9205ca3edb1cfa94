"""Characters on demand: grammars are written as plain recursive descent and run as text arrives.

A grammar is a generator that yields whenever it needs a character and is not at the end; so what it does
cannot depend on how the text was split. Owns putting characters back, which lets a grammar try one reading
and, when it turns out `Malformed`, read the same text again as something else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Reading = Generator[None, str, T]
"""Is sent characters, `""` at the end of the text; returns a T."""

END = ""
SPACE = " \t\r\n"
MAX_DEPTH = 64
"""Nesting that no call needs, and that a reader may survive."""


class Malformed(Exception):
    """The text is not what the grammar wants. The character that showed it is the last one read."""


class Source:
    """The text, with a record of what was read since the last mark."""

    def __init__(self) -> None:
        self._again: deque[str] = deque()
        self._record: list[str] | None = None
        self._last = END

    def next(self) -> Reading[str]:
        self._last = self._again.popleft() if self._again else (yield)
        if self._record is not None:
            self._record.append(self._last)
        return self._last

    def next_solid(self, skipped: str = SPACE) -> Reading[str]:
        """The next character that is none of `skipped`."""
        while (char := (yield from self.next())) != END and char in skipped:
            pass
        return char

    def mark(self) -> None:
        """What is read from here on can be put back."""
        self._record = []

    def mark_last(self) -> None:
        """As `mark`, the character read last included."""
        self._record = [self._last]

    def forget(self) -> None:
        """Nothing will be put back but the last character."""
        self._record = None

    def back(self) -> None:
        """Puts back all that was read since the mark, or without one the last character."""
        unread = [self._last] if self._record is None else self._record
        self._again.extendleft(reversed(unread))
        self._record = None

    def back_one(self) -> None:
        self._again.appendleft(self._last)
        if self._record is not None:
            self._record.pop()

    def literal(self, text: str) -> Reading[None]:
        """Raises Malformed at the first character that differs."""
        for expected in text:
            if (yield from self.next()) != expected:
                raise Malformed


class Driver:
    """Runs one grammar over text that comes in pieces."""

    def __init__(self, reading: Reading[None]) -> None:
        self._reading = reading
        self._over = False
        next(reading)

    def push(self, text: str) -> None:
        for char in text:
            self._reading.send(char)

    def finish(self) -> None:
        """A grammar reads until it has seen the end; a second call does nothing."""
        if self._over:
            return
        self._over = True
        try:
            while True:
                self._reading.send(END)
        except StopIteration:
            pass
