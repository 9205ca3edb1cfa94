"""What one request tells others of itself: an engine that its work is not wanted, the guard that another one
goes on or that nothing more comes. Said when the bus is there, the last word once more behind an outage:
whoever misses the rest finds out by silence, or by a lease. What is heard is listening.py's.
"""

from __future__ import annotations

from baton_common.context import RequestContext
from baton_contracts import subjects
from baton_contracts.frames import Cancel, Error, Held, encode_frame
from baton_llm_gateway.attempt import Attempt
from baton_llm_gateway.cancellation import Cancellation
from baton_llm_gateway.listening import CANCELLED


def way_out(ctx: RequestContext, guard: str | None) -> str:
    """The subject of an answer's frames: the guard's, or without one straight to the edge."""
    if guard is None:
        return subjects.reply(ctx.envelope.edge, ctx.request_id)
    return subjects.frames(ctx.node.instance, guard, ctx.request_id)


class Telling:
    def __init__(self, ctx: RequestContext, cancellation: Cancellation, way: str) -> None:
        self._ctx = ctx
        self._cancellation = cancellation
        self._way = way
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
