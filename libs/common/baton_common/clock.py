"""Time, so that tests can bring their own.

Wall time (Unix seconds) crosses processes: deadlines and spans. Monotonic time measures silence.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Clock:
    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic

    def seconds_to_beat(self, interval: float) -> float:
        """Until a whole multiple of `interval` in wall time, half an interval away at least. Whoever beats by
        this beats when the others of the machine do: all are woken once for all, not once for each."""
        rest = interval - self.wall() % interval
        return rest if rest >= interval / 2 else rest + interval
