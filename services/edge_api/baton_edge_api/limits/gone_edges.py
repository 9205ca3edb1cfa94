"""Which edges are gone, of those that once held something: their seats are free again.

Owns the watches over their leases. An edge that nobody has heard of yet gets the time of a lease, from now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Set
from typing import Protocol


class Leases(Protocol):
    def lives(self, instance: str) -> bool: ...

    def watch(self, instance: str, on_lost: Callable[[str], None]) -> Callable[[], None]: ...


class GoneEdges:
    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._watched: dict[str, Callable[[], None]] = {}
        self._gone: set[str] = set()
        self.lost = asyncio.Event()
        """Set when a watched one is; whoever waits for it clears it."""

    def among(self, edges: Iterable[str]) -> Set[str]:
        """Those of `edges` whose lease was lost; the others are watched from here on. One that was only cut
        off, or stood still for a moment, is heard again and counts again."""
        gone: set[str] = set()
        for edge in edges:
            if edge in self._gone and not self._leases.lives(edge):
                gone.add(edge)
                continue
            self._gone.discard(edge)
            if edge not in self._watched:
                self._watched[edge] = self._leases.watch(edge, self._on_lost)
        return gone

    def _on_lost(self, edge: str) -> None:
        self._watched.pop(edge, None)
        self._gone.add(edge)
        self.lost.set()

    def stop(self) -> None:
        for unwatch in self._watched.values():
            unwatch()
        self._watched.clear()
