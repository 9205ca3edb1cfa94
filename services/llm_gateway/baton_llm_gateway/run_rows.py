"""The ledger rows of a run: one for each attempt that a replica, or another server, accepted.

Owns which attempt is not booked yet: what the last one is depends on what follows it, so its row is written
when a later one was accepted, or when nothing follows. What a row says is attempt.py's, how it gets into the
store books.py's.
"""

from __future__ import annotations

import asyncio

from baton_common.context import RequestContext
from baton_llm_gateway.attempt import Attempt
from baton_llm_gateway.books import LEDGER_SECONDS, Books


class RunRows:
    def __init__(self, ctx: RequestContext, books: Books) -> None:
        self._ctx = ctx
        self._books = books
        self._unbooked: Attempt | None = None
        self._stored: set[asyncio.Task[None]] = set()

    @property
    def unbooked(self) -> Attempt | None:
        """The last one that was accepted, until it is booked."""
        return self._unbooked

    def note_accepted(self, attempt: Attempt) -> None:
        if self._unbooked:
            self._unbooked.supersede()
            self.book_last()
        self._unbooked = attempt

    def book_last(self) -> None:
        """Before an attempt was accepted no model was called: then there is no row."""
        attempt, self._unbooked = self._unbooked, None
        if attempt is None:
            return
        if not attempt.over:
            attempt.cancel()
        record = attempt.record(self._ctx.envelope, self._ctx.node.clock.wall())
        self._stored.add(self._books.write(record))

    async def see_stored(self) -> None:
        """After all has been told: that the rows are stored belongs into the trace."""
        if self._stored:
            with self._ctx.spans.span("ledger", rows=len(self._stored)) as span:
                _, pending = await asyncio.wait(self._stored, timeout=LEDGER_SECONDS)
                span.set(stored=len(self._stored) - len(pending))
