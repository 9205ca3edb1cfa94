"""How the targets have done lately: which is left alone for a while, and which may be tried once to see.

closed     failures in a row are counted; the third opens it
open       left alone for its cooldown, which doubles with each opening up to MAX_COOLDOWN_SECONDS
half open  the cooldown is over: one request may try it; its success closes, its failure opens again
"""

from __future__ import annotations

from dataclasses import dataclass

from baton_common.clock import Clock
from baton_common.routes import Target
from baton_llm_gateway.providers.failures import Failure

FAILURES_IN_A_ROW = 3
MAX_COOLDOWN_SECONDS = 300.0
MOST_DOUBLINGS = 20


@dataclass
class _State:
    failures: int = 0
    openings: int = 0
    open_until: float | None = None
    is_probed: bool = False
    rests_until: float = 0.0


class TargetHealth:
    """Of all targets, by name; a target without failures has no state."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._states: dict[str, _State] = {}

    def may_be_tried(self, target: Target) -> bool:
        state = self._states.get(target.name)
        if state is None or state.open_until is None:
            return True
        return not state.is_probed and self._clock.monotonic() >= state.open_until

    def is_resting(self, target: Target) -> bool:
        """It said that it has had too much: others come first, but it may be asked if there is none."""
        state = self._states.get(target.name)
        return state is not None and self._clock.monotonic() < state.rests_until

    def seconds_left(self, target: Target) -> float:
        """Until it may be tried again."""
        state = self._states.get(target.name)
        if state is None or state.open_until is None:
            return 0.0
        return max(0.0, state.open_until - self._clock.monotonic())

    def tried(self, target: Target) -> None:
        """It is being asked now, and `learn` will be called. Of several requests one finds out whether it is
        well again."""
        state = self._states.get(target.name)
        if state and state.open_until is not None:
            state.is_probed = True

    def learn(self, target: Target, failure: Failure | None, *, answered: bool) -> None:
        """From the end of a try. Without a failure and without an answer it says nothing about the target:
        its client left, or the request was at fault."""
        if answered:
            self._states.pop(target.name, None)
            return
        state = self._states.get(target.name)
        if state:
            state.is_probed = False
        if failure and failure.counts:
            self._note_failure(target)
        elif failure and failure.elsewhere and failure.error.retry_after_seconds:
            state = self._states.setdefault(target.name, _State())
            state.rests_until = self._clock.monotonic() + failure.error.retry_after_seconds

    def _note_failure(self, target: Target) -> None:
        """Those that were under way when it was opened say nothing new."""
        state = self._states.setdefault(target.name, _State())
        if state.open_until is not None and self._clock.monotonic() < state.open_until:
            return
        state.failures += 1
        if target.cooldown_seconds and (state.openings or state.failures >= FAILURES_IN_A_ROW):
            doubled = target.cooldown_seconds * 2 ** min(state.openings, MOST_DOUBLINGS)
            cooldown = min(MAX_COOLDOWN_SECONDS, doubled)
            state.openings += 1
            state.open_until = self._clock.monotonic() + cooldown
