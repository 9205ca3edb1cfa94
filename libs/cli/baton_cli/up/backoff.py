"""How long to wait before a process that died is started again. Pure."""

from __future__ import annotations

FIRST_SECONDS = 0.2
LONGEST_SECONDS = 10.0
CALM_AFTER_SECONDS = 30.0
"""A process that lived this long had started well: its next death counts as its first."""


class Backoff:
    def __init__(self) -> None:
        self._next_seconds = FIRST_SECONDS

    def after_death(self, alive_seconds: float) -> float:
        """Seconds to wait now, given how long it lived."""
        if alive_seconds >= CALM_AFTER_SECONDS:
            self._next_seconds = FIRST_SECONDS
        delay = self._next_seconds
        self._next_seconds = min(delay * 2, LONGEST_SECONDS)
        return delay
