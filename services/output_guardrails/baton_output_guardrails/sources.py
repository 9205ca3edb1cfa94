"""An answer over documents names its sources: a last line that says what [1], [2], … are. Pure.

Models cite by number at best. The line lists the documents that the answer cites, or, where it cites none,
all that it was given. Its form: a blank line, then `Sources: [1] file > heading; [3] file`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_CITED = re.compile(r"\[(\d{1,3})\]")
_TAIL_CHARACTERS = 5
"""The longest citation; one may arrive in pieces."""


class SourceLine:
    """Watches one answer's text as it goes out."""

    def __init__(self, citations: Sequence[str]) -> None:
        self._citations = citations
        self._cited: set[int] = set()
        self._tail = ""

    def see(self, text: str) -> None:
        if not self._citations or not text:
            return
        seen = self._tail + text
        self._cited.update(int(number) for number in _CITED.findall(seen))
        self._tail = seen[-_TAIL_CHARACTERS:]

    def line(self) -> str:
        """What to add to the finished answer; empty without documents."""
        numbered = list(enumerate(self._citations, start=1))
        named = [source for source in numbered if source[0] in self._cited] or numbered
        if not named:
            return ""
        return "\n\nSources: " + "; ".join(f"[{number}] {source}" for number, source in named)
