"""What one request tells others of itself: an engine that its work is not wanted, the guard that another one
goes on or that nothing more comes, the edge that the guard died behind the answer's end. Said when the bus is
there, the last word once more behind an outage: whoever misses the rest finds out by silence, or by a lease.
What is heard is listening.py's.
"""

from __future__ import annotations

import asyncio

from baton_common.context import RequestContext
from baton_common.tasks import spawn
from baton_contracts import subjects
from baton_contracts.frames import Cancel, Error, Held, encode_frame
from baton_contracts.heartbeats import LEASE_INTERVAL_SECONDS, LEASE_LOST_AFTER_SECONDS
from baton_llm_gateway.attempt import Attempt
from baton_llm_gateway.errand import Errand
from baton_llm_gateway.listening import CANCELLED, guard_lost

GUARD_WATCHED_SECONDS = LEASE_LOST_AFTER_SECONDS + 2 * LEASE_INTERVAL_SECONDS
"""Past an answer's end. A guard that died then is found silent at the first beat behind its lease."""


class Telling:
    def __init__(self, errand: Errand) -> None:
        self._ctx = errand.ctx
        self._cancellation = errand.cancellation
        self._way = errand.way
        self.cancel_came_early = False
        """Before a replica had accepted: then the guard may have been opened after it, too."""

    async def engine(self, reason: str, attempt: int, *, never_heard: bool = False) -> None:
        cancel = Cancel(
            request_id=self._ctx.request_id,
            reason=reason,  # pyright: ignore[reportArgumentType]  # checked by pydantic
            attempt=attempt,
            run_id=self._ctx.envelope.run_id,
            never_heard=never_heard,
        )
        await self._ctx.tell(subjects.cancel(self._ctx.request_id), cancel.encode())

    async def guard_of_successor(self, attempt: Attempt) -> None:
        """Another replica holds the request now, however long it is silent at first: a grammar may take it
        many seconds. From here on we watch it, and the guard need only watch us."""
        held = Held(
            request_id=self._ctx.request_id,
            attempt=attempt.number,
            sender=self._ctx.node.instance,
            stop="engine_worker",
        )
        await self._ctx.tell(self._way, encode_frame(held))

    async def guard(self, last: Attempt) -> None:
        """That nothing more comes, unless it knows that from the engine's own last frame. An End(cancelled)
        says so only to a guard that has heard the cancel."""
        heard_cancel = self._cancellation.is_set and not self.cancel_came_early
        if last.confirmed and last.error is None and (last.outcome == "finished" or heard_cancel):
            return
        frame = Error(
            request_id=self._ctx.request_id,
            attempt=last.number,
            sender=self._ctx.node.instance,
            error=last.error or CANCELLED,
            usage=last.usage,
        )
        await self._ctx.tell_last(self._way, frame)


def tell_if_lost(ctx: RequestContext, guard: str) -> None:
    """A guard that died with a short answer in its hands is found out when that is over for us, and the edge,
    which may not have heard of it yet, would wait. What comes behind an answer's end is heard by nobody, nor
    by another run of the same request id."""

    def on_lost(instance: str) -> None:
        spawn(ctx.fail(guard_lost(instance), is_late=True))

    unwatch = ctx.node.leases.watch(guard, on_lost, on_closed=lambda _: None)
    asyncio.get_running_loop().call_later(GUARD_WATCHED_SECONDS, unwatch)
