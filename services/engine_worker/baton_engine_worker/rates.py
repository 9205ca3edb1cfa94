"""How much a second, over the last seconds: from a counter that only grows. The caller has the clock."""

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
