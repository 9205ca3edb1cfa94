"""One request that follows a flight: what the leader got from the start goes out on a stream of its own, what
came long before it in few frames.

Owns that stream, and the follower's end: the leader's end, its own audience's leave, or an error. What a
flight is, and who leads it, are single_flight.py's.
"""

from __future__ import annotations

import asyncio

from baton_common.errors import RequestFailed
from baton_common.frame_sender import FrameOutbox, FrameStream, NumberedFrame
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import SHARED, Error, Usage
from baton_contracts.records import UsageRecord
from baton_llm_gateway.audience import Audience
from baton_llm_gateway.cached_answer import row_without_call
from baton_llm_gateway.catching_up import in_few
from baton_llm_gateway.errand import Errand
from baton_llm_gateway.listening import CANCELLED, guard_lost
from baton_llm_gateway.single_flight import Flight


class Follower:
    def __init__(self, errand: Errand, flight: Flight, outbox: FrameOutbox) -> None:
        self._errand = errand
        self._flight = flight
        self._outbox = outbox
        self._audience = Audience(errand)
        self._stream: FrameStream | None = None
        self._num_sent = 0
        self._news = asyncio.Event()

    async def run(self) -> bool:
        """False: nothing was sent, and the call must be made after all. True: the client has its answer, or
        was told why there is none. Raises RequestFailed if our guard, the way there, is gone."""
        flight, cancellation = self._flight, self._errand.cancellation
        flight.join(self._news)
        self._audience.wake = self._news.set
        cancellation.holds_blocks = False
        try:
            with self._audience.watched():
                await self._follow()
                return await self._finish()
        finally:
            flight.leave(self._news)
            cancellation.holds_blocks = True
            if self._stream:
                self._outbox.ended(self._stream)

    def record(self, started_at: float) -> UsageRecord | None:
        """What the answer would have cost; it cost nothing. None: there was no answer."""
        last, ctx = self._flight.last, self._errand.ctx
        if last is None or last.outcome != "finished" or self._audience.is_gone():
            return None
        return row_without_call(
            ctx.envelope,
            self._flight.model,
            SHARED,
            last.usage or Usage(),
            last.finish_reason,
            started_at=started_at,
            ended_at=ctx.node.clock.wall(),
        )

    async def _follow(self) -> None:
        flight = self._flight
        while not self._audience.is_gone():
            if new := flight.frames[self._num_sent :]:
                await self._send(*in_few(new))
                self._num_sent += len(new)
            elif flight.is_over:
                return
            else:
                self._news.clear()
                await self._news.wait()

    async def _send(self, *frames: NumberedFrame) -> None:
        """As our own, behind our own beginning."""
        begun: list[NumberedFrame] = []
        if self._stream is None:
            self._stream = self._errand.open_stream(self._outbox)
            begun.append(self._errand.prologue(self._flight.model, SHARED))
        ours = {"request_id": self._errand.ctx.request_id}
        await self._stream.send_all([*begun, *(frame.model_copy(update=ours) for frame in frames)])

    async def _finish(self) -> bool:
        last, audience = self._flight.last, self._audience
        if audience.guard_is_lost and not (audience.is_cancelled or audience.edge_is_lost):
            raise RequestFailed(guard_lost(self._errand.guard))
        if audience.is_gone():
            await self._tell(CANCELLED)
            return True
        if last is not None and last.end_frame and last.outcome == "finished":
            await self._send(last.end_frame.model_copy(update={"blocks_freed": 0}))
            return True
        is_their_own = bool(last and last.error and last.error.status < 500)
        if self._stream is None and not is_their_own:
            return False
        text = "The call that this answer was shared with broke off."
        broke = ErrorBody(code="upstream_error", message=text, stop="llm_gateway")
        await self._tell((last and last.error) or broke)
        return True

    async def _tell(self, error: ErrorBody) -> None:
        ctx = self._errand.ctx
        frame = Error(
            request_id=ctx.request_id,
            attempt=ctx.envelope.attempt,
            sender=ctx.node.instance,
            error=error,
        )
        await ctx.tell_last(self._errand.way, frame)
