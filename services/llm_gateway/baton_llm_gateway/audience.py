"""Those who wait for one answer: the edge with its client, the guard, and the requests that follow the call.

Owns the watch over them, and who hears at once that one of them left: an attempt at a replica by a note among
its frames, whoever else waits by being woken. Does not know what is done about it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from baton_contracts.errors import ErrorBody
from baton_llm_gateway.errand import Errand
from baton_llm_gateway.listening import CANCELLED, guard_lost
from baton_llm_gateway.single_flight import Flight

OVERTAKEN_SECONDS = 0.25
"""The engine's word that it was cancelled may come before the cancel itself."""


class Audience:
    """`note` puts something among the frames of an attempt; `flight` has those who follow this call."""

    def __init__(
        self,
        errand: Errand,
        note: Callable[[ErrorBody], None] | None = None,
        flight: Flight | None = None,
    ) -> None:
        self._errand = errand
        self._note = note
        self._flight = flight
        if flight:
            flight.on_empty = self._woken
        self.guard_is_lost = False
        self.edge_is_lost = False
        self.wake: Callable[[], None] | None = None
        """Of what waits for something else than frames of an attempt, while it does."""

    @contextmanager
    def watched(self) -> Generator[None]:
        errand, leases = self._errand, self._errand.ctx.node.leases
        unwatch_guard = leases.watch(errand.guard, self._on_guard_lost)
        unwatch_edge = leases.watch(errand.ctx.envelope.edge, self._on_edge_lost)
        errand.cancellation.wake = self._on_cancelled
        try:
            yield
        finally:
            unwatch_guard()
            unwatch_edge()
            errand.cancellation.wake = None

    @property
    def is_cancelled(self) -> bool:
        return self._errand.cancellation.is_set

    def is_gone(self) -> bool:
        """Of those of this request itself: whoever follows the call may still be there."""
        return self.is_cancelled or self.guard_is_lost or self.edge_is_lost

    def all_are_gone(self) -> bool:
        return self.is_gone() and not (self._flight and self._flight.num_followers)

    async def cancel_came(self) -> bool:
        """Waits a moment for one that the engine's word overtook."""
        return self.is_cancelled or await self._errand.cancellation.within(OVERTAKEN_SECONDS)

    async def client_is_gone(self) -> bool:
        """What a replica saw, we may see a moment later: that the edge is gone, and its client with it."""
        return (
            self.edge_is_lost
            or await self._errand.cancellation.within(OVERTAKEN_SECONDS)
            or self.edge_is_lost
        )

    def _woken(self) -> None:
        if self.wake:
            self.wake()

    def _on_cancelled(self) -> None:
        if self.wake:
            self.wake()
        elif self._note:
            self._note(CANCELLED)

    def _on_edge_lost(self, instance: str) -> None:
        """An engine sees it by itself; nobody else does."""
        del instance
        self.edge_is_lost = True
        self._woken()

    def _on_guard_lost(self, instance: str) -> None:
        self.guard_is_lost = True
        self._woken()
        if self._note:
            self._note(guard_lost(instance))
