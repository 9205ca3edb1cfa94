"""Phrases found in text, however it is spelled, spaced or cut into pieces.

A text becomes symbols (`text_normal.comparable`, white space collapsed, a BOUNDARY wherever a word begins or
ends); phrases become symbols the same way; an Aho-Corasick automaton finds all of them in one pass, one step
a symbol. Its state also says how much of the text's end may be the beginning of a phrase, which is what a
stream has to hold back. Knows nothing of what a find means.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from baton_common.text_normal import builds_words, comparable

BOUNDARY = "\0"


class SymbolReader:
    """Characters in, symbols out; remembers only whether it is inside a word or behind a blank."""

    def __init__(self) -> None:
        self._in_word = False
        self._after_blank = True

    def read(self, char: str) -> str:
        found = comparable(char)
        if found == " ":
            return self._blank()
        symbols = ""
        for part in found:
            if builds_words(part) != self._in_word:
                self._in_word = not self._in_word
                symbols += BOUNDARY
            symbols += part
            self._after_blank = False
        return symbols

    def _blank(self) -> str:
        symbols = BOUNDARY if self._in_word else ""
        self._in_word = False
        if not self._after_blank:
            symbols += " "
        self._after_blank = True
        return symbols

    def finish(self) -> str:
        """The text is over."""
        symbols = BOUNDARY if self._in_word else ""
        self._in_word = False
        return symbols


def symbols_of(text: str, *, whole_words: bool = True) -> str:
    """A phrase as symbols. `whole_words=False` lets it begin and end inside a word."""
    reader = SymbolReader()
    symbols = ("".join(map(reader.read, text)) + reader.finish()).strip(" ")
    return symbols if whole_words else symbols.strip(BOUNDARY)


class PhraseAutomaton:
    """Aho and Corasick, "Efficient string matching" (1975). State 0 is the root."""

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

    def first_in(self, text: str) -> int | None:
        """Index of the phrase that ends first in `text`."""
        reader, state = SymbolReader(), 0
        for char in text:
            for symbol in reader.read(char):
                state = self.step(state, symbol)
                if self.found[state]:
                    return self.found[state][0]
        for symbol in reader.finish():
            state = self.step(state, symbol)
        return self.found[state][0] if self.found[state] else None
