"""The last word on each request, said again behind an outage of the bus (ADR 28).

Owns what this process said last of requests, for as long as it may not have arrived: a bus that dies takes
with it what it was given in its last moment, and who came back late has missed what was said at once. Who has
heard it all the same drops it: the request is over there, or its number is known.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass

from baton_common.bus import SETTLE_SECONDS, Bus
from baton_common.clock import Clock
from baton_common.errors import BusError
from baton_common.tasks import spawn
from baton_contracts.frames import End, Error, encode_frame

log = logging.getLogger(__name__)

KEPT_SECONDS = 5.0
"""Longer than a silent connection is taken for a living one."""
KEPT_WORDS = 4096


@dataclass(frozen=True, slots=True)
class _Word:
    said_at: float
    subject: str
    frame: End | Error
    run_id: str


class LastWords:
    def __init__(self, bus: Bus, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock
        self._words: deque[_Word] = deque(maxlen=KEPT_WORDS)
        self._is_watched = False
        """A look at their age is to come: while there are any."""
        bus.when_back(self._on_back)

    @property
    def num_kept(self) -> int:
        return len(self._words)

    def note(self, subject: str, frame: End | Error, run_id: str) -> None:
        """`frame` is being said on `subject` now."""
        self._words.append(_Word(self._clock.monotonic(), subject, frame, run_id))
        if not self._is_watched:
            self._watch()

    def _watch(self) -> None:
        self._is_watched = True
        asyncio.get_running_loop().call_later(KEPT_SECONDS, self._forget_old)

    def _forget_old(self) -> None:
        """While the bus is away, or only just back, none is."""
        self._is_watched = False
        oldest = self._clock.monotonic() - KEPT_SECONDS
        while self._bus.is_settled and self._words and self._words[0].said_at <= oldest:
            self._words.popleft()
        if self._words:
            self._watch()

    def _on_back(self) -> None:
        """At once, and when whoever is there is back for sure."""
        spawn(self._say_again())
        asyncio.get_running_loop().call_later(SETTLE_SECONDS, lambda: spawn(self._say_again()))

    async def _say_again(self) -> None:
        """With its run: by now the request's id may be another run's."""
        for word in tuple(self._words):
            frame = word.frame.model_copy(update={"run_id": word.run_id or None})
            try:
                await self._bus.publish(word.subject, encode_frame(frame))
            except BusError as error:
                log.debug("last words wait for the bus: %s", error)
                return
