"""One request in the gateway, with its guard open: attempts run one after another, each booked, the end told.

Owns the request's frame queue and the watch over replica and guard. What an attempt hears is listening.py's,
what follows a failure is retry_policy.py's.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from baton_common.context import RequestContext
from baton_common.errors import BusError, RequestFailed
from baton_common.frame_inbox import FrameInbox
from baton_common.frame_sender import FrameOutbox
from baton_contracts import subjects
from baton_contracts.envelope import Envelope
from baton_contracts.errors import ErrorBody, ErrorCode
from baton_contracts.frames import Cancel, Error, Prologue, encode_frame
from baton_contracts.handoffs import EngineWork, GatewayHandoff, RouteHandoff
from baton_llm_gateway.attempt import Attempt
from baton_llm_gateway.books import Books
from baton_llm_gateway.cancellation import Cancellation
from baton_llm_gateway.itinerary import Itinerary, Leg
from baton_llm_gateway.listening import CANCELLED, Listener, guard_lost, replica_lost
from baton_llm_gateway.model_choice import Choice
from baton_llm_gateway.providers.call import ProviderCall
from baton_llm_gateway.providers.connections import Connections
from baton_llm_gateway.single_flight import Flight
from baton_llm_gateway.target_health import TargetHealth

log = logging.getLogger(__name__)

ROUTE_ACK_SECONDS = 2.0
"""The router's word comes after a replica's, for which it waits less than this."""
OVERTAKEN_SECONDS = 0.25
"""The engine's word that it was cancelled may come before the cancel itself."""
LEDGER_SECONDS = 1.0
"""How long the request waits, in the trace, for its record to be stored; storing goes on without it."""


@dataclass(frozen=True)
class RelayLimits:
    max_attempts: int
    stall_seconds: float


@dataclass(frozen=True)
class Providers:
    """What this process has for calls to other servers."""

    connections: Connections
    health: TargetHealth
    outbox: FrameOutbox


class Relay:
    """Owned by the actor's task; `guard` is open and `queue` listens before the first attempt. Without a
    guard the frames go straight to the edge: those of other servers only."""

    def __init__(
        self,
        ctx: RequestContext,
        handoff: GatewayHandoff,
        choice: Choice,
        cancellation: Cancellation,
        guard: str | None,
        itinerary: Itinerary,
        inbox: FrameInbox,
        books: Books,
        limits: RelayLimits,
        providers: Providers,
        flight: Flight | None = None,
    ) -> None:
        self._ctx = ctx
        self._handoff = handoff
        self._choice = choice
        self._guard = guard or ctx.node.instance
        self._way_out = (
            subjects.frames(ctx.node.instance, guard, ctx.request_id)
            if guard
            else subjects.reply(ctx.envelope.edge, ctx.request_id)
        )
        self._itinerary = itinerary
        self._providers = providers
        self._flight = flight
        """Those who follow this call."""
        if flight:
            flight.on_empty = self._on_alone
        self._provider_call: ProviderCall | None = None
        self._queue = inbox.open(ctx.request_id)
        self._listener = Listener(
            self._queue,
            cancellation,
            request_id=ctx.request_id,
            ourselves=ctx.node.instance,
            stall_seconds=limits.stall_seconds,
        )
        self._books = books
        self._limits = limits
        self._cancellation = cancellation
        self._guard_lost = False
        self._edge_lost = False
        self._cancel_came_early = False
        """Before a replica had accepted: then the guard may have been opened after it, too."""
        self._failed_replicas: list[str] = []
        self._unbooked: Attempt | None = None
        """The last one that a replica accepted: what it is depends on what follows."""
        self._stored: set[asyncio.Task[None]] = set()

    async def run(self) -> Attempt:
        """The attempt that ended it; the guard has been told."""
        leases = self._ctx.node.leases
        unwatch_guard = leases.watch(self._guard, self._on_guard_lost)
        unwatch_edge = leases.watch(self._ctx.envelope.edge, self._on_edge_lost)
        self._cancellation.wake = self._on_given_up
        try:
            last = await self._attempts()
            if last.outcome == "cancelled" and not self._cancellation.is_set:
                await self._cancellation.within(OVERTAKEN_SECONDS)
            await self._close(last)
        finally:
            unwatch_guard()
            unwatch_edge()
            self._queue.close()
        return last

    def error_past_the_guard(self, last: Attempt) -> ErrorBody | None:
        """What the edge must hear from us directly: the guard, our way there, is gone; or the engine stopped
        although nobody had cancelled, because it missed one of those who wait for the answer."""
        if self._guard_lost:
            return last.error or guard_lost(self._guard)
        if last.outcome == "cancelled" and not self._cancellation.is_set:
            return _lost_sight(last.replica or "")
        return None

    async def see_stored(self) -> None:
        """After all has been told: that the rows are stored belongs into the trace."""
        if self._stored:
            with self._ctx.spans.span("ledger", rows=len(self._stored)) as span:
                _, pending = await asyncio.wait(self._stored, timeout=LEDGER_SECONDS)
                span.set(stored=len(self._stored) - len(pending))

    async def _attempts(self) -> Attempt:
        try:
            return await self._until_one_ends_it()
        finally:
            self._book_unbooked()

    async def _until_one_ends_it(self) -> Attempt:
        attempt = Attempt(self._ctx.envelope.attempt, self._choice.model, self._ctx.node.clock.wall())
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
            following = self._itinerary.after(attempt, leg, is_gone=self._is_given_up())
            if following is None:
                final = _final(attempt, original, self._unbooked)
                self._book_unbooked()  # with its own error
                attempt.error = final
                return attempt
            if following.model != leg.model:
                reason = f"{self._choice.reason}; {leg.model}: {attempt.error.code}"
                self._ctx.attributes["route_reason"] = reason
            leg = following
            if leg.pause and await self._cancellation.within(leg.pause):
                attempt.cancel()
                return attempt
            attempt = attempt.next(leg.model, self._ctx.node.clock.wall())

    async def _run_one(self, attempt: Attempt, leg: Leg) -> None:
        with self._ctx.spans.span("attempt", attempt=attempt.number, model=leg.model) as span:
            if attempt.num_resumed:
                span.set(resumed_tokens=attempt.num_resumed)
            if leg.target.is_local:
                await self._call(attempt)
            else:
                await self._call_provider(attempt, leg)
            span.set(replica=attempt.replica or "none", outcome=attempt.outcome or "unknown")
            if attempt.error:
                span.set(error=attempt.error.code)

    async def _call(self, attempt: Attempt) -> None:
        if self._cancellation.is_set:
            attempt.cancel()
            return
        try:
            ack = await self._ctx.hand_on(
                subjects.route(self._ctx.request_id),
                lambda envelope: self._route(envelope, attempt),
                to="inference_router",
                attempt=attempt.number,
                ack_seconds=ROUTE_ACK_SECONDS,
            )
        except RequestFailed as failed:
            attempt.fail(failed.error)
            if failed.error.code == "stop_unresponsive":  # a replica may have taken it all the same
                await self._tell_engine("superseded", attempt.number)
            return
        attempt.replica = ack.instance
        self._note_accepted(attempt)
        if self._cancellation.cancel:  # it did not reach the replica
            self._cancel_came_early = True
            await self._tell_engine(self._cancellation.cancel.reason, attempt.number)
        unwatch = self._ctx.node.leases.watch(
            ack.instance, lambda replica: self._listener.note(replica_lost(replica), attempt.number)
        )
        try:
            await self._listener.until_over(attempt)
        except asyncio.CancelledError:
            await self._abandon(attempt)
            raise
        finally:
            unwatch()
        if attempt.lost_sight_of_us and await self._nobody_waits():
            attempt.cancel()
        if attempt.error:
            self._failed_replicas.append(ack.instance)
            await self._tell_engine("superseded", attempt.number)

    async def _nobody_waits(self) -> bool:
        """What the replica saw, we may see a moment later: that the edge is gone, and its client with it."""
        return self._edge_lost or await self._cancellation.within(OVERTAKEN_SECONDS) or self._edge_lost

    async def _call_provider(self, attempt: Attempt, leg: Leg) -> None:
        if self._is_given_up():
            attempt.cancel()
            return
        outbox, handoff, instance = self._providers.outbox, self._handoff, self._ctx.node.instance
        stream = outbox.open(self._way_out, self._ctx.request_id, attempt.number)
        prologue = Prologue(
            request_id=self._ctx.request_id,
            sender=instance,
            seq=0,
            model=attempt.model,
            replica=leg.target.name,
            gateway=instance,
            guard=self._guard,
            num_answers=handoff.chat.sampling.n,
            citations=handoff.prompt.citations,
        )
        call = self._provider_call = ProviderCall(
            self._providers.connections,
            leg.target,
            handoff.chat,
            handoff.prompt,
            attempt,
            stream,
            prologue,
            self._is_given_up_by_all,
        )
        self._cancellation.holds_blocks = False
        self._providers.health.tried(leg.target)
        try:
            await call.run()
        except RequestFailed as failed:
            attempt.fail(failed.error)
        except asyncio.CancelledError:
            attempt.fail(_too_late())
            await self._close(attempt)
            raise
        finally:
            self._provider_call = None
            self._cancellation.holds_blocks = True
            outbox.ended(stream)
            if attempt.replica:
                self._note_accepted(attempt)
            self._providers.health.learn(leg.target, call.failure, answered=attempt.outcome == "finished")

    def _is_given_up(self) -> bool:
        return self._cancellation.is_set or self._guard_lost or self._edge_lost

    def _on_alone(self) -> None:
        if self._provider_call:
            self._provider_call.wake()

    def _is_given_up_by_all(self) -> bool:
        return self._is_given_up() and not (self._flight and self._flight.num_followers)

    def _on_given_up(self) -> None:
        if self._provider_call:
            self._provider_call.wake()
        else:
            self._listener.note(CANCELLED)

    def _route(self, envelope: Envelope, attempt: Attempt) -> RouteHandoff:
        handoff, chat = self._handoff, self._handoff.chat
        return RouteHandoff(
            envelope=envelope,
            work=EngineWork(
                model=attempt.model,
                prompt=handoff.prompt,
                sampling=chat.sampling,
                tool_choice=chat.tool_choice,
                priority=chat.priority,
                resume_token_ids=attempt.resumed[0] if attempt.resumed else (),
                resume_others=attempt.resumed[1:],
                cache_salt=_cache_salt(envelope.tenant.tenant_id, chat.cache_salt),
            ),
            gateway=self._ctx.node.instance,
            guard=self._guard,
            avoid_replicas=tuple(self._failed_replicas),
        )

    async def _abandon(self, attempt: Attempt) -> None:
        """The deadline passed, or this process ends: the engine stops, and its count is still wanted."""
        await self._tell_engine("deadline", attempt.number)
        await self._listener.last_word(attempt)
        attempt.fail(_too_late())
        await self._close(attempt)

    def _note_accepted(self, attempt: Attempt) -> None:
        if self._unbooked:
            self._unbooked.supersede()
            self._book_unbooked()
        self._unbooked = attempt

    def _book_unbooked(self) -> None:
        """One row for each attempt that a replica accepted: before that, no model was called."""
        attempt, self._unbooked = self._unbooked, None
        if attempt is None:
            return
        if not attempt.over:
            attempt.cancel()
        record = attempt.record(self._ctx.envelope, self._ctx.node.clock.wall())
        self._stored.add(self._books.write(record))

    async def _close(self, last: Attempt) -> None:
        """Tells the guard that nothing more comes, unless it knows that from the engine's own last frame. An
        End(cancelled) says so only to a guard that has heard the cancel."""
        heard_cancel = self._cancellation.is_set and not self._cancel_came_early
        if last.confirmed and last.error is None and (last.outcome == "finished" or heard_cancel):
            return
        frame = Error(
            request_id=self._ctx.request_id,
            attempt=last.number,
            sender=self._ctx.node.instance,
            error=last.error or CANCELLED,
            usage=last.usage,
        )
        await self._publish(self._way_out, encode_frame(frame))

    async def _tell_engine(self, reason: str, attempt: int) -> None:
        cancel = Cancel(request_id=self._ctx.request_id, reason=reason, attempt=attempt)  # pyright: ignore[reportArgumentType]  # checked by pydantic
        await self._publish(subjects.cancel(self._ctx.request_id), cancel.encode())

    async def _publish(self, subject: str, payload: bytes) -> None:
        try:
            await self._ctx.node.bus.publish(subject, payload)
        except BusError as error:
            log.warning("not told: %s", error)

    def _on_edge_lost(self, instance: str) -> None:
        """An engine sees it by itself; a call to another server does not."""
        del instance
        self._edge_lost = True
        if self._provider_call:
            self._provider_call.wake()

    def _on_guard_lost(self, instance: str) -> None:
        self._guard_lost = True
        if self._provider_call:
            self._provider_call.wake()
        self._listener.note(guard_lost(instance))


def _cache_salt(tenant_id: str, asked: str) -> str:
    """Tenants never share; within one, only those who name the same salt."""
    return f"{tenant_id}\0{asked}" if asked else tenant_id


def _too_late() -> ErrorBody:
    text = "The request was not answered before its deadline."
    return ErrorBody(code="deadline_exceeded", message=text, stop="llm_gateway")


def _lost_sight(replica: str) -> ErrorBody:
    text = f"Replica {replica} gave the request up: it lost sight of those who wait for the answer."
    return ErrorBody(code="stop_lost", message=text, stop="engine_worker")


def _final(attempt: Attempt, original: ErrorBody, broke_off: Attempt | None) -> ErrorBody:
    """What the client gets: before the first token the first error; after it that the answer broke off, and
    why the last replica that had it did not go on."""
    if not attempt.has_content:
        return original
    error = (broke_off and broke_off.error) or original
    code: ErrorCode = "stop_lost" if error.code == "stop_lost" else "upstream_error"
    count = attempt.num_resumed + (attempt.num_tokens or attempt.num_pieces)
    text = f"The answer broke off after {count} tokens and can't go on: {error.message}"
    return ErrorBody(code=code, message=text, stop=error.stop)
