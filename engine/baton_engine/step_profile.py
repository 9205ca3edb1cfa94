"""Where the time of steps goes. Owns the sums; knows nothing of what the phases do.

Always on: a phase costs one reading of a clock. On a GPU work is only started in `model`, and waited for
where its result is first looked at: in `sample`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

Phase = Literal["draft", "schedule", "model", "sample", "emit"]


@dataclass(frozen=True)
class StepProfile:
    """Sums since the engine's start; the difference of two is the profile of the time between.

    num_steps counts steps that computed something, num_tokens all tokens computed, of prompts and answers.
    """

    schedule_seconds: float = 0.0
    model_seconds: float = 0.0
    sample_seconds: float = 0.0
    emit_seconds: float = 0.0
    num_steps: int = 0
    num_tokens: int = 0
    draft_seconds: float = 0.0

    @property
    def total_seconds(self) -> float:
        steps = self.schedule_seconds + self.model_seconds + self.sample_seconds + self.emit_seconds
        return self.draft_seconds + steps

    @property
    def tokens_per_step(self) -> float:
        return self.num_tokens / self.num_steps if self.num_steps else 0.0

    @property
    def shares(self) -> dict[Phase, float]:
        """Each phase's part of the whole; all 0 before the first step."""
        whole = self.total_seconds or 1.0
        return {
            "draft": self.draft_seconds / whole,
            "schedule": self.schedule_seconds / whole,
            "model": self.model_seconds / whole,
            "sample": self.sample_seconds / whole,
            "emit": self.emit_seconds / whole,
        }

    def since(self, earlier: StepProfile) -> StepProfile:
        return StepProfile(
            self.schedule_seconds - earlier.schedule_seconds,
            self.model_seconds - earlier.model_seconds,
            self.sample_seconds - earlier.sample_seconds,
            self.emit_seconds - earlier.emit_seconds,
            self.num_steps - earlier.num_steps,
            self.num_tokens - earlier.num_tokens,
            self.draft_seconds - earlier.draft_seconds,
        )


class StepProfiler:
    """begin, then `ended` after each phase: the time since the last call is that phase's."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._last = self._began = 0.0
        self._seconds: dict[Phase, float] = dict.fromkeys(get_args(Phase), 0.0)
        self._num_steps = 0
        self._num_tokens = 0

    def begin(self) -> None:
        self._last = self._began = self._clock()

    @property
    def seconds_since_begin(self) -> float:
        """Up to the end of the last phase."""
        return self._last - self._began

    def ended(self, phase: Phase) -> None:
        now = self._clock()
        self._seconds[phase] += now - self._last
        self._last = now

    def count(self, num_tokens: int) -> None:
        self._num_steps += 1
        self._num_tokens += num_tokens

    def profile(self) -> StepProfile:
        seconds = self._seconds
        return StepProfile(
            seconds["schedule"],
            seconds["model"],
            seconds["sample"],
            seconds["emit"],
            self._num_steps,
            self._num_tokens,
            seconds["draft"],
        )
