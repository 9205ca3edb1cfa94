"""One request in the gateway, with its guard open: attempts run one after another, and the end is told.

Owns the request's frame queue and the order of its attempts. How an attempt runs is own_replicas' and
other_servers', where the next one goes the itinerary's, who waits for the answer audience.py's, what is
booked run_rows'.
"""

from __future__ import annotations

from dataclasses import dataclass

from baton_common.errors import RequestFailed
from baton_common.frame_inbox import FrameInbox
from baton_contracts.errors import ErrorBody
from baton_llm_gateway.attempt import Attempt
from baton_llm_gateway.audience import Audience
from baton_llm_gateway.books import Books
from baton_llm_gateway.errand import Errand
from baton_llm_gateway.itinerary import Itinerary, Leg
from baton_llm_gateway.last_errors import final_error, lost_sight
from baton_llm_gateway.listening import Listener, guard_lost
from baton_llm_gateway.other_servers import OtherServers, Providers
from baton_llm_gateway.own_replicas import OwnReplicas
from baton_llm_gateway.run_rows import RunRows
from baton_llm_gateway.single_flight import Flight
from baton_llm_gateway.telling import Telling


@dataclass(frozen=True)
class RelayLimits:
    max_attempts: int
    stall_seconds: float


@dataclass(frozen=True)
class RelayParts:
    """What a relay needs of the process."""

    inbox: FrameInbox
    books: Books
    limits: RelayLimits
    providers: Providers


class Relay:
    """Owned by the actor's task; the guard is open and the queue listens before the first attempt. Without a
    guard the frames go straight to the edge: those of other servers only. `flight`: those who follow this
    call."""

    def __init__(
        self, errand: Errand, itinerary: Itinerary, parts: RelayParts, flight: Flight | None = None
    ) -> None:
        ctx = errand.ctx
        self._errand = errand
        self._itinerary = itinerary
        self._flight = flight
        self._queue = parts.inbox.open(ctx.request_id)
        self._queue.run_id = ctx.envelope.run_id
        listener = Listener(
            self._queue,
            errand.cancellation,
            request_id=ctx.request_id,
            ourselves=ctx.node.instance,
            stall_seconds=parts.limits.stall_seconds,
        )
        audience = self._audience = Audience(errand, listener.note, flight)
        telling = self._telling = Telling(errand)
        rows = self._rows = RunRows(ctx, parts.books)
        self._replicas = OwnReplicas(errand, audience, telling, rows, listener)
        self._servers = OtherServers(errand, audience, telling, rows, parts.providers)

    async def run(self) -> Attempt:
        """The attempt that ended it; the guard has been told."""
        try:
            with self._audience.watched():
                last = await self._attempts()
                if last.outcome == "cancelled":
                    await self._audience.cancel_came()
                await self._telling.guard(last)
        finally:
            self._queue.close()
        return last

    def error_past_the_guard(self, last: Attempt) -> ErrorBody | None:
        """What the edge must hear from us directly: the guard, our way there, is gone; or the engine stopped
        although nobody had cancelled, because it missed one of those who wait for the answer."""
        if self._audience.guard_is_lost:
            return last.error or guard_lost(self._errand.guard)
        if last.outcome == "cancelled" and not self._audience.is_cancelled:
            return lost_sight(last.replica or "")
        return None

    async def see_stored(self) -> None:
        """After all has been told: that the rows are stored belongs into the trace."""
        await self._rows.see_stored()

    async def _attempts(self) -> Attempt:
        try:
            return await self._until_one_ends_it()
        finally:
            self._rows.book_last()

    async def _until_one_ends_it(self) -> Attempt:
        ctx, choice = self._errand.ctx, self._errand.choice
        attempt = Attempt(ctx.envelope.attempt, choice.model, ctx.node.clock.wall())
        attempt.tee = self._flight.add if self._flight else None
        try:
            leg = self._itinerary.begin()
        except RequestFailed as failed:
            attempt.fail(failed.error)
            return attempt
        attempt.model = leg.model
        original: ErrorBody | None = None
        while True:
            await self._run_one(attempt, leg)
            if attempt.error is None:
                return attempt
            original = original or attempt.error
            following = self._itinerary.after(attempt, leg, is_gone=self._audience.is_gone())
            if following is None:
                final = final_error(attempt, original, self._rows.unbooked)
                self._rows.book_last()  # with its own error
                attempt.error = final
                return attempt
            if following.model != leg.model:
                ctx.attributes["route_reason"] = f"{choice.reason}; {leg.model}: {attempt.error.code}"
            leg = following
            if leg.pause and await self._errand.cancellation.within(leg.pause):
                attempt.cancel()
                return attempt
            attempt = attempt.next(leg.model, ctx.node.clock.wall())
            self._queue.begin(attempt.number)

    async def _run_one(self, attempt: Attempt, leg: Leg) -> None:
        with self._errand.ctx.spans.span("attempt", attempt=attempt.number, model=leg.model) as span:
            if attempt.num_resumed:
                span.set(resumed_tokens=attempt.num_resumed)
            if leg.target.is_local:
                await self._replicas.call(attempt)
            else:
                self._queue.is_listening = False  # to what are our own frames
                try:
                    await self._servers.call(attempt, leg.target)
                finally:
                    self._queue.is_listening = True
            span.set(replica=attempt.replica or "none", outcome=attempt.outcome or "unknown")
            if attempt.error:
                span.set(error=attempt.error.code)
