"""Whether a request was given up, by whom, and who must be woken by that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from baton_contracts.frames import Cancel


class Cancellation:
    """Set once by a cancel of the whole request; a cancel of one attempt is our own word to an engine."""

    def __init__(self) -> None:
        self.cancel: Cancel | None = None
        self.wake: Callable[[], None] | None = None
        """Called when it is set; the owner of the wait puts it here."""
        self.holds_blocks = True
        """False while no engine of ours works on it: then there is nothing to free, and we can say so."""
        self._set = asyncio.Event()

    @property
    def is_set(self) -> bool:
        return self.cancel is not None

    async def note(self, cancel: Cancel) -> int | None:
        """The KV blocks freed by it: none, or not known here."""
        freed = None if self.holds_blocks else 0
        if cancel.attempt is None and self.cancel is None:
            self.cancel = cancel
            self._set.set()
            if self.wake:
                self.wake()
        return freed

    async def within(self, seconds: float) -> bool:
        """True as soon as it is set, False if it is not set within `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._set.wait()
        except TimeoutError:
            return False
        return True
