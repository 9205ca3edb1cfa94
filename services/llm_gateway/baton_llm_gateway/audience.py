"""Those who wait for one answer: the edge with its client, the guard, and the requests that follow the call.

Owns the watch over them, and who hears at once that one of them left: an attempt at a replica by the
listener, a call to another server by being woken. Does not know what is done about it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from baton_common.context import RequestContext
from baton_llm_gateway.cancellation import Cancellation
from baton_llm_gateway.listening import CANCELLED, Listener, guard_lost
from baton_llm_gateway.single_flight import Flight

OVERTAKEN_SECONDS = 0.25
"""The engine's word that it was cancelled may come before the cancel itself."""


class Audience:
    """`guard` is this process where there is none; `flight` has those who follow this call."""

    def __init__(
        self,
        ctx: RequestContext,
        cancellation: Cancellation,
        guard: str,
        listener: Listener,
        flight: Flight | None,
    ) -> None:
        self._ctx = ctx
        self.cancellation = cancellation
        self._guard = guard
        self._listener = listener
        self._flight = flight
        if flight:
            flight.on_empty = self._wake_call
        self.guard_is_lost = False
        self._edge_is_lost = False
        self.wake: Callable[[], None] | None = None
        """Of the call to another server, while one runs."""

    @contextmanager
    def watched(self) -> Generator[None]:
        leases = self._ctx.node.leases
        unwatch_guard = leases.watch(self._guard, self._on_guard_lost)
        unwatch_edge = leases.watch(self._ctx.envelope.edge, self._on_edge_lost)
        self.cancellation.wake = self._on_cancelled
        try:
            yield
        finally:
            unwatch_guard()
            unwatch_edge()

    def is_gone(self) -> bool:
        """Of those of this request itself: whoever follows the call may still be there."""
        return self.cancellation.is_set or self.guard_is_lost or self._edge_is_lost

    def all_are_gone(self) -> bool:
        return self.is_gone() and not (self._flight and self._flight.num_followers)

    async def cancel_came(self) -> bool:
        """Waits a moment for one that the engine's word overtook."""
        return self.cancellation.is_set or await self.cancellation.within(OVERTAKEN_SECONDS)

    async def client_is_gone(self) -> bool:
        """What a replica saw, we may see a moment later: that the edge is gone, and its client with it."""
        return self._edge_is_lost or await self.cancellation.within(OVERTAKEN_SECONDS) or self._edge_is_lost

    def _wake_call(self) -> None:
        if self.wake:
            self.wake()

    def _on_cancelled(self) -> None:
        if self.wake:
            self.wake()
        else:
            self._listener.note(CANCELLED)

    def _on_edge_lost(self, instance: str) -> None:
        """An engine sees it by itself; a call to another server does not."""
        del instance
        self._edge_is_lost = True
        self._wake_call()

    def _on_guard_lost(self, instance: str) -> None:
        self.guard_is_lost = True
        self._wake_call()
        self._listener.note(guard_lost(instance))
