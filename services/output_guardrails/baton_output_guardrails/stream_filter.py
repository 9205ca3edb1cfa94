"""The filter of one answer: engine text in, text that is safe to send out. Knows no frames and no bus."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from baton_output_guardrails.deny import DenyRules, DenyWindow
from baton_output_guardrails.restorer import Piece, Restorer


class StreamFilter:
    """Restores first, then denies: what a person would read is what is judged. However the text is cut,
    the same text comes out."""

    def __init__(self, values: Mapping[str, str], rules: DenyRules, *, monitor: bool = False) -> None:
        self._restorer = Restorer(values)
        self._window = DenyWindow(rules, monitor=monitor)
        self._places: deque[tuple[int, int]] = deque()
        """While text is held: how much had been fed, and where in the window that is."""
        self.num_fed = 0
        self.num_passed = 0
        """Of the characters fed, so many are decided about: all that became of them is out."""
        self.held_chars_max = 0

    @property
    def blocked(self) -> bool:
        return self._window.blocked

    @property
    def hits(self) -> tuple[str, ...]:
        return tuple(self._window.hits)

    def push(self, text: str) -> str:
        self.num_fed += len(text)
        clean = self._judge(self._restorer.push(text))
        self.held_chars_max = max(self.held_chars_max, self._restorer.held_chars + self._window.held_chars)
        self._note_passed()
        return clean

    def flush(self) -> str:
        """The answer is over: what was held back, unless it is banned."""
        clean = self._judge(self._restorer.flush()) + self._window.flush()
        self._note_passed()
        return clean

    def _note_passed(self) -> None:
        places = self._places
        if not places and not self._window.held_chars and not self._restorer.held_chars:
            self.num_passed = self.num_fed
            return
        places.append((self.num_fed - self._restorer.held_chars, self._window.num_seen))
        while places and places[0][1] <= self._window.num_decided:
            self.num_passed = places.popleft()[0]

    def _judge(self, pieces: list[Piece]) -> str:
        return "".join(self._window.push(piece) for piece in pieces)
