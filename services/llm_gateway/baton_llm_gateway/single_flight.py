"""Identical requests under way at the same time are one call: the first makes it, the others follow.

A follower has its own guard and its own stream, and gets what the leader got from the start. A leader whose
client left goes on while anyone follows, where the call is its own (another server's); else a follower that
has sent nothing yet makes the call itself. Only for tenants that want it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from baton_contracts.frames import Data
from baton_llm_gateway.attempt import Attempt


@dataclass
class Flight:
    """One call, as far as it has come. Written by its leader, read by its followers."""

    model: str = ""
    frames: list[Data] = field(default_factory=list[Data])
    last: Attempt | None = None
    is_over: bool = False
    on_empty: Callable[[], None] | None = None
    """The leader's: nobody follows any more."""
    _followers: set[asyncio.Event] = field(default_factory=set[asyncio.Event])

    @property
    def num_followers(self) -> int:
        return len(self._followers)

    def add(self, model: str, frame: Data) -> None:
        self.model = model
        self.frames.append(frame)
        self._tell()

    def end(self, last: Attempt | None) -> None:
        self.last, self.is_over = last, True
        if last:
            self.model = last.model
        self._tell()

    def join(self, follower: asyncio.Event) -> None:
        self._followers.add(follower)

    def leave(self, follower: asyncio.Event) -> None:
        self._followers.discard(follower)
        if self.on_empty and not self._followers:
            self.on_empty()

    def _tell(self) -> None:
        for follower in self._followers:
            follower.set()


class Flights:
    """Those of this process, by what the cache would call their answers."""

    def __init__(self) -> None:
        self._flights: dict[str, Flight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def find(self, key: str) -> Flight | None:
        return self._flights.get(key)

    def begin(self, key: str) -> Flight:
        """The caller leads, and must call `end`."""
        flight = self._flights[key] = Flight()
        return flight

    def end(self, key: str, flight: Flight, last: Attempt | None) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
        flight.end(last)
