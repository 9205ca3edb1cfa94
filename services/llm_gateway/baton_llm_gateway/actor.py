"""The gateway's inbox: choose the model, look into the cache, open the guard, relay the answer, keep it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from baton_common.context import RequestContext
from baton_common.errors import RequestFailed
from baton_common.frame_sender import FrameOutbox
from baton_common.routes import CacheRules
from baton_contracts import subjects
from baton_contracts.frames import CACHED, SHARED
from baton_contracts.handoffs import GatewayHandoff, GuardOutHandoff
from baton_contracts.records import UsageRecord
from baton_llm_gateway.attempt import Attempt
from baton_llm_gateway.books import LEDGER_SECONDS
from baton_llm_gateway.cached_answer import row_without_call, send_cached
from baton_llm_gateway.cancellation import Cancellation
from baton_llm_gateway.errand import Errand
from baton_llm_gateway.follower import Follower
from baton_llm_gateway.itinerary import Itinerary
from baton_llm_gateway.model_choice import Choice, ModelChooser
from baton_llm_gateway.recall import Recall, Sought
from baton_llm_gateway.relay import Relay, RelayParts
from baton_llm_gateway.response_cache import CachedAnswer
from baton_llm_gateway.single_flight import Flight, Flights
from baton_llm_gateway.telling import tell_if_lost


@dataclass(frozen=True)
class Gateway:
    chooser: ModelChooser
    recall: Recall
    outbox: FrameOutbox
    parts: RelayParts
    flights: Flights = field(default_factory=Flights)

    async def handle(self, ctx: RequestContext, handoff: GatewayHandoff) -> None:
        """Raises RequestFailed for an unknown model, and when the guard can't be opened or is lost."""
        choice = self._chosen(ctx, handoff)
        rules = self.chooser.catalog.cache.of(ctx.envelope.tenant.tenant_id)
        sought = await self.recall.seek(ctx, handoff, choice, rules)
        cancellation = Cancellation()
        ctx.on_cancel = cancellation.note  # from here on a guard may be open, which must be told
        guard = None if handoff.plain else await self._open_guard(ctx, handoff)
        errand = Errand.of(ctx, handoff, choice, cancellation, guard)
        if sought.hit:
            await self._answer_from_cache(errand, sought.hit, sought.similarity)
        else:
            await self._answer(errand, sought, rules)
        if guard:
            tell_if_lost(ctx, guard)

    def _chosen(self, ctx: RequestContext, handoff: GatewayHandoff) -> Choice:
        choice = self.chooser.choose(handoff.chat.model, handoff.prompt)
        ctx.attributes |= {"model": choice.model, "route": choice.rule, "route_reason": choice.reason}
        if choice.hard_probability is not None:
            ctx.attributes["route_hard_probability"] = round(choice.hard_probability, 3)
        return choice

    async def _open_guard(self, ctx: RequestContext, handoff: GatewayHandoff) -> str:
        gateway = ctx.node.instance
        ack = await ctx.hand_on(
            subjects.guard_out(ctx.request_id),
            lambda envelope: GuardOutHandoff(
                envelope=envelope,
                gateway=gateway,
                vault=handoff.vault,
                name_sources=handoff.chat.sampling.structured is None,
            ),
            to="output_guardrails",
        )
        return ack.instance

    async def _answer_from_cache(self, errand: Errand, hit: CachedAnswer, similarity: float | None) -> None:
        ctx = errand.ctx
        started_at = ctx.node.clock.wall()
        with ctx.spans.span("replay", characters=len(hit.text)):
            await send_cached(errand, self.outbox, hit, similarity)
        record = row_without_call(
            ctx.envelope,
            errand.choice.model,
            CACHED,
            hit.usage,
            hit.finish_reason,
            started_at=started_at,
            ended_at=ctx.node.clock.wall(),
        )
        with ctx.spans.span("ledger"):
            await self._book(record)

    async def _answer(self, errand: Errand, sought: Sought, rules: CacheRules) -> None:
        """By a call, our own or that of an identical request."""
        is_shared = rules.single_flight and errand.handoff.chat.cache_max_age is None
        shared_key = sought.key if is_shared else None
        if shared_key and await self._followed(errand, shared_key):
            return
        flight = self.flights.begin(shared_key) if shared_key else None
        ended: Attempt | None = None
        try:
            relay = self._relay(errand, flight)
            last = ended = await relay.run()
            if last.outcome == "finished" and last.model == errand.choice.model:
                self.recall.keep(sought, last, errand.handoff.chat.cache_ttl or rules.ttl_seconds)
        finally:
            if flight and shared_key:
                self.flights.end(shared_key, flight, ended)
        _describe(errand.ctx, last)
        await relay.see_stored()
        if error := relay.error_past_the_guard(last):
            raise RequestFailed(error)

    async def _followed(self, errand: Errand, key: str) -> bool:
        """True: the same call was under way, and its answer was this one's too."""
        ctx = errand.ctx
        while flight := self.flights.find(key):
            started_at = ctx.node.clock.wall()
            follower = Follower(errand, flight, self.outbox)
            with ctx.spans.span("follow") as span:
                is_answered = await follower.run()
                span.set(frames=len(flight.frames), answered=is_answered)
            if is_answered:
                ctx.attributes |= {"model": flight.model, "replica": SHARED, "single_flight": "followed"}
                if record := follower.record(started_at):
                    await self._book(record)
                return True
        return False

    def _relay(self, errand: Errand, flight: Flight | None) -> Relay:
        catalog, choice = self.chooser.catalog, errand.choice
        others = (choice.other,) if choice.other else ()
        models = tuple(dict.fromkeys((choice.model, *others, *catalog.route(choice.model).fallbacks)))
        itinerary = Itinerary(
            catalog,
            self.parts.providers.health,
            models,
            max_attempts=self.parts.limits.max_attempts,
            without_replicas=errand.handoff.plain,
        )
        return Relay(errand, itinerary, self.parts, flight)

    async def _book(self, record: UsageRecord) -> None:
        await asyncio.wait({self.parts.books.write(record)}, timeout=LEDGER_SECONDS)


def _describe(ctx: RequestContext, last: Attempt) -> None:
    ctx.attributes |= {
        "model": last.model,
        "attempts": last.number,
        "replica": last.replica or "none",
        "outcome": last.outcome or "unknown",
    }
    if last.num_resumed:
        ctx.attributes["resumed_tokens"] = last.num_resumed
    if last.usage:
        ctx.attributes["prompt_tokens"] = last.usage.prompt_tokens
        ctx.attributes["cached_tokens"] = last.usage.cached_tokens
        ctx.attributes["completion_tokens"] = last.usage.completion_tokens
    if last.error:
        ctx.attributes["error"] = last.error.code
