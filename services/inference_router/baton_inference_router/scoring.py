"""The order in which replicas are tried. Pure: knows numbers, no bus and no time.

Least load first. The load counts what runs, what waits and the seats reserved but not yet reported back; CPU
and memory use are not in it, queue depth is what makes a request wait. A full replica is never in the order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """One replica that is alive, ready and serves the model."""

    replica: str
    running: int
    waiting: int
    reserved: int
    """Seats of this router that the replica's own numbers do not contain yet."""
    capacity: int
    """Requests it takes at most, running and waiting together."""
    waiting_tokens: int = 0
    kv_usage: float = 0.0
    last_pick: int = 0
    """Grows with each pick; the longest unpicked wins a tie, so that idle replicas take turns."""

    @property
    def load(self) -> int:
        return self.running + self.waiting + self.reserved

    @property
    def full(self) -> bool:
        return self.load >= self.capacity


def ranked(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The best first; full ones left out."""
    return sorted((candidate for candidate in candidates if not candidate.full), key=_preference)


def _preference(candidate: Candidate) -> tuple[int, int, float, int, str]:
    return (
        candidate.load,
        candidate.waiting_tokens,
        candidate.kv_usage,
        candidate.last_pick,
        candidate.replica,
    )
