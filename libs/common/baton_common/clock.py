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
