"""Phrases found in text, however it is spelled, spaced or cut into pieces.

A text becomes symbols (`text_normal.comparable`, white space collapsed, a BOUNDARY wherever a word begins or
ends); phrases become symbols the same way; an Aho-Corasick automaton finds all of them in one pass, one step
a symbol. Its state also says how much of the text's end may be the beginning of a phrase, which is what a
stream has to hold back. Knows nothing of what a find means.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from baton_common.text_normal import builds_words, comparable

BOUNDARY = "\0"
ROOT = 0
"""The automaton's state where nothing has begun."""
_MOST_QUIET = 4096
"""Characters in one of the few tables of those that nothing begins with."""


class Reading(NamedTuple):
    """What is remembered between two characters."""

    in_word: bool = False
    after_blank: bool = True


BEGINNING = Reading()


@lru_cache(maxsize=16384)
def read(char: str, before: Reading) -> tuple[str, Reading]:
    """The symbols of a character behind others, and what is remembered for the next."""
    in_word, after_blank = before
    found = comparable(char)
    if found == " ":
        symbols = BOUNDARY if in_word else ""
        return symbols if after_blank else symbols + " ", BEGINNING
    symbols = ""
    for part in found:
        if builds_words(part) != in_word:
            in_word = not in_word
            symbols += BOUNDARY
        symbols += part
        after_blank = False
    return symbols, Reading(in_word, after_blank)


def symbols_at_end(before: Reading) -> str:
    """The text is over."""
    return BOUNDARY if before.in_word else ""


def symbols_of(text: str, *, whole_words: bool = True) -> str:
    """A phrase as symbols. `whole_words=False` lets it begin and end inside a word."""
    symbols, reading = "", BEGINNING
    for char in text:
        more, reading = read(char, reading)
        symbols += more
    symbols = (symbols + symbols_at_end(reading)).strip(" ")
    return symbols if whole_words else symbols.strip(BOUNDARY)


class _Quiet(dict[str, "_Quiet | None"]):
    """With the automaton at its root and so much remembered, by character: the table for the one after it, or
    None if it may begin a phrase, or end one. Filled as characters come."""

    def __init__(self, automaton: PhraseAutomaton, reading: Reading) -> None:
        super().__init__()
        self._automaton = automaton
        self.reading = reading

    def __missing__(self, char: str) -> _Quiet | None:
        if len(self) >= _MOST_QUIET:
            self.clear()
        symbols, reading = read(char, self.reading)
        self[char] = self._automaton.quiet(reading) if self._automaton.passes(symbols) else None
        return self[char]


class PhraseAutomaton:
    """Aho and Corasick, "Efficient string matching" (1975)."""

    def __init__(self, patterns: Sequence[str]) -> None:
        """`patterns` are symbols. Raises ValueError for an empty one."""
        self._next: list[dict[str, int]] = [{}]
        self._fall: list[int] = [0]
        self.depth: list[int] = [0]
        """Length of the longest beginning of a phrase with which the text so far ends, by state."""
        self.found: list[tuple[int, ...]] = [()]
        """Indices of the phrases that end here, by state."""
        self.lengths = [len(pattern) for pattern in patterns]
        self.longest = max(self.lengths, default=0)
        for index, pattern in enumerate(patterns):
            if not pattern.strip(BOUNDARY + " "):
                raise ValueError(f"phrase {index + 1} has nothing in it that could be found")
            self._insert(index, pattern)
        self._link()
        self._quiet: dict[Reading, _Quiet] = {}

    def _insert(self, index: int, pattern: str) -> None:
        state = 0
        for symbol in pattern:
            if symbol not in self._next[state]:
                self._next[state][symbol] = len(self._next)
                self._next.append({})
                self._fall.append(0)
                self.depth.append(self.depth[state] + 1)
                self.found.append(())
            state = self._next[state][symbol]
        self.found[state] += (index,)

    def _link(self) -> None:
        waiting = deque(self._next[0].values())
        while waiting:
            state = waiting.popleft()
            for symbol, child in self._next[state].items():
                self._fall[child] = self.step(self._fall[state], symbol)
                self.found[child] += self.found[self._fall[child]]
                waiting.append(child)

    def step(self, state: int, symbol: str) -> int:
        while True:
            following = self._next[state].get(symbol)
            if following is not None:
                return following
            if state == 0:
                return 0
            state = self._fall[state]

    def passes(self, symbols: str) -> bool:
        """Whether they lead from the root back to it, and no phrase ends among them."""
        state = ROOT
        for symbol in symbols:
            state = self.step(state, symbol)
            if self.found[state]:
                return False
        return state == ROOT

    def quiet(self, reading: Reading) -> _Quiet:
        if reading not in self._quiet:
            self._quiet[reading] = _Quiet(self, reading)
        return self._quiet[reading]

    def skip(self, text: str, start: int, reading: Reading) -> tuple[int, Reading]:
        """From the root: the index of the first character from `start` on that matters, and what is
        remembered before it. Nearly all of nearly every text is skipped: a look into a table a character."""
        table = self.quiet(reading)
        for index in range(start, len(text)):
            following = table[text[index]]
            if following is None:
                return index, table.reading
            table = following
        return len(text), table.reading

    def first_in(self, text: str) -> int | None:
        """Index of the phrase that ends first in `text`."""
        reading, state, index = BEGINNING, ROOT, 0
        while index < len(text):
            if state == ROOT:
                index, reading = self.skip(text, index, reading)
            symbols, reading = read(text[index], reading) if index < len(text) else ("", reading)
            for symbol in symbols:
                state = self.step(state, symbol)
                if self.found[state]:
                    return self.found[state][0]
            index += 1
        for symbol in symbols_at_end(reading):
            state = self.step(state, symbol)
        return self.found[state][0] if self.found[state] else None
