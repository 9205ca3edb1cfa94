"""How much a second: over the last seconds, from a counter that only grows; and while at work, from samples.

The caller has the clock.
"""

from __future__ import annotations

from collections import deque


class SlidingRate:
    """Reads of a growing total, at most `window_seconds` old; the rate is what came in between."""

    def __init__(self, window_seconds: float = 10.0) -> None:
        self._window = window_seconds
        self._reads: deque[tuple[float, int]] = deque()

    def read(self, total: int, now: float) -> float:
        """Notes that the counter stands at `total` at `now` (monotonic seconds) and returns the rate."""
        self._reads.append((now, total))
        while now - self._reads[0][0] > self._window:
            self._reads.popleft()
        first_at, first = self._reads[0]
        seconds = now - first_at
        return max(0.0, (total - first) / seconds) if seconds > 0 else 0.0


class RecentSpeed:
    """Of the last few thousand units of work: old samples fade as new ones come, idle time counts nothing."""

    def __init__(self, memory: float = 4096.0) -> None:
        self._memory = memory
        self._amount = 0.0
        self._seconds = 0.0

    def note(self, amount: float, seconds: float) -> None:
        if amount <= 0 or seconds <= 0:
            return
        kept = self._memory / (self._memory + amount)
        self._amount = self._amount * kept + amount
        self._seconds = self._seconds * kept + seconds

    @property
    def per_second(self) -> float:
        return self._amount / self._seconds if self._seconds else 0.0
