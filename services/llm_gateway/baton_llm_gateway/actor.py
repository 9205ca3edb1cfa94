"""The gateway's inbox: choose the model, look into the cache, open the guard, relay the answer, keep it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from baton_common.context import RequestContext
from baton_common.errors import RequestFailed
from baton_common.frame_inbox import FrameInbox
from baton_common.frame_sender import FrameOutbox
from baton_common.routes import CacheRules
from baton_common.tasks import spawn
from baton_contracts import subjects
from baton_contracts.frames import CACHED, SHARED
from baton_contracts.handoffs import GatewayHandoff, GuardOutHandoff
from baton_contracts.heartbeats import LEASE_INTERVAL_SECONDS, LEASE_LOST_AFTER_SECONDS
from baton_llm_gateway.attempt import Attempt
from baton_llm_gateway.books import LEDGER_SECONDS, Books
from baton_llm_gateway.cached_answer import row_without_call, send_cached
from baton_llm_gateway.cancellation import Cancellation
from baton_llm_gateway.itinerary import Itinerary
from baton_llm_gateway.listening import guard_lost
from baton_llm_gateway.model_choice import Choice, ModelChooser
from baton_llm_gateway.other_servers import Providers
from baton_llm_gateway.relay import Relay, RelayLimits
from baton_llm_gateway.response_cache import CachedAnswer, ResponseCache, cache_key, may_be_cached
from baton_llm_gateway.semantic_cache import SemanticCache, Similar
from baton_llm_gateway.semantic_key import Alike
from baton_llm_gateway.semantic_key import alike as alike_key
from baton_llm_gateway.single_flight import Flights, Follower

GUARD_WATCHED_SECONDS = LEASE_LOST_AFTER_SECONDS + 2 * LEASE_INTERVAL_SECONDS
"""Past an answer's end. A guard that died then is found silent at the first beat behind its lease."""


@dataclass(frozen=True)
class CachePolicy:
    version: str
    sampled_too: bool


@dataclass(frozen=True)
class Gateway:
    chooser: ModelChooser
    cache: ResponseCache
    semantic: SemanticCache
    cache_policy: CachePolicy
    inbox: FrameInbox
    outbox: FrameOutbox
    books: Books
    limits: RelayLimits
    providers: Providers
    flights: Flights = field(default_factory=Flights)

    async def handle(self, ctx: RequestContext, handoff: GatewayHandoff) -> None:
        """Raises RequestFailed for an unknown model, and when the guard can't be opened or is lost."""
        choice = self.chooser.choose(handoff.chat.model, handoff.prompt)
        ctx.attributes |= {"model": choice.model, "route": choice.rule, "route_reason": choice.reason}
        if choice.hard_probability is not None:
            ctx.attributes["route_hard_probability"] = round(choice.hard_probability, 3)
        rules = self.chooser.catalog.cache.of(ctx.envelope.tenant.tenant_id)
        key = self._cache_key(ctx, handoff, choice, rules)
        hit, similarity = self.cache.get(key, handoff.chat.cache_max_age) if key else None, None
        alike = self._alike(ctx, handoff, choice) if key and rules.semantic else None
        if alike and hit is None and (found := await self._similar(ctx, handoff, alike, rules)):
            hit, similarity = found.answer, found.similarity
        ctx.attributes["cache"] = "hit" if hit else "miss" if key else "off"
        if hit:
            ctx.attributes["cache_layer"] = "exact" if similarity is None else "semantic"
        cancellation = Cancellation()
        ctx.on_cancel = cancellation.note  # from here on a guard may be open, which must be told
        guard = None if handoff.plain else await self._open_guard(ctx, handoff)
        if hit:
            await self._answer_from_cache(ctx, handoff, choice, guard, hit, similarity)
            _tell_if_lost(ctx, guard)
            return
        shared_key = key if rules.single_flight and handoff.chat.cache_max_age is None else None
        if shared_key and await self._followed(ctx, handoff, cancellation, guard, shared_key):
            _tell_if_lost(ctx, guard)
            return
        flight = self.flights.begin(shared_key) if shared_key else None
        ended: Attempt | None = None
        try:
            relay = Relay(
                ctx,
                handoff,
                choice,
                cancellation,
                guard,
                self._itinerary(choice, without_replicas=handoff.plain),
                self.inbox,
                self.books,
                self.limits,
                self.providers,
                flight,
            )
            last = ended = await relay.run()
            if key and last.outcome == "finished" and last.model == choice.model:
                is_kept = self._remember(key, last, handoff.chat.cache_ttl or rules.ttl_seconds)
                if alike and is_kept and not last.calls:
                    self.semantic.remember(alike, key)
        finally:
            if flight and shared_key:
                self.flights.end(shared_key, flight, ended)
        _describe(ctx, last)
        await relay.see_stored()
        if error := relay.error_past_the_guard(last):
            raise RequestFailed(error)
        _tell_if_lost(ctx, guard)

    async def _followed(
        self,
        ctx: RequestContext,
        handoff: GatewayHandoff,
        cancellation: Cancellation,
        guard: str | None,
        key: str,
    ) -> bool:
        """True: the same call was under way, and its answer was this one's too."""
        while flight := self.flights.find(key):
            started_at = ctx.node.clock.wall()
            num_answers, citations = handoff.chat.sampling.n, handoff.prompt.citations
            follower = Follower(ctx, flight, cancellation, self.outbox, guard, num_answers, citations)
            with ctx.spans.span("follow") as span:
                is_answered = await follower.run()
                span.set(frames=len(flight.frames), answered=is_answered)
            if is_answered:
                ctx.attributes |= {"model": flight.model, "replica": SHARED, "single_flight": "followed"}
                if record := follower.record(started_at):
                    await asyncio.wait({self.books.write(record)}, timeout=LEDGER_SECONDS)
                return True
        return False

    def _itinerary(self, choice: Choice, *, without_replicas: bool) -> Itinerary:
        catalog = self.chooser.catalog
        others = (choice.other,) if choice.other else ()
        models = tuple(dict.fromkeys((choice.model, *others, *catalog.route(choice.model).fallbacks)))
        return Itinerary(
            catalog,
            self.providers.health,
            models,
            max_attempts=self.limits.max_attempts,
            without_replicas=without_replicas,
        )

    def _cache_key(
        self, ctx: RequestContext, handoff: GatewayHandoff, choice: Choice, rules: CacheRules
    ) -> str | None:
        """None: this request neither reads the cache nor writes it."""
        sampling = handoff.chat.sampling
        if not handoff.chat.use_cache or not rules.enabled:
            return None
        sampled_too = self.cache_policy.sampled_too if rules.sampled is None else rules.sampled
        if not may_be_cached(sampling, sampled_too=sampled_too):
            return None
        return cache_key(
            tenant_id=ctx.envelope.tenant.tenant_id,
            model=choice.model,
            prompt=handoff.prompt,
            chat=handoff.chat,
            policy_version=self.cache_policy.version,
        )

    def _alike(self, ctx: RequestContext, handoff: GatewayHandoff, choice: Choice) -> Alike | None:
        return alike_key(
            tenant_id=ctx.envelope.tenant.tenant_id,
            model=choice.model,
            prompt=handoff.prompt,
            chat=handoff.chat,
            policy_version=self.cache_policy.version,
        )

    async def _similar(
        self, ctx: RequestContext, handoff: GatewayHandoff, alike: Alike, rules: CacheRules
    ) -> Similar | None:
        with ctx.spans.span("semantic_cache", threshold=rules.semantic_threshold) as span:
            max_age = handoff.chat.cache_max_age
            verdict = await self.semantic.find(ctx.request_id, alike, rules.semantic_threshold, max_age)
            span.set(verdict=verdict.why)
            if verdict.nearest is not None:
                span.set(similarity=round(verdict.nearest, 4))
        return verdict.hit

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

    async def _answer_from_cache(
        self,
        ctx: RequestContext,
        handoff: GatewayHandoff,
        choice: Choice,
        guard: str | None,
        hit: CachedAnswer,
        similarity: float | None,
    ) -> None:
        started_at = ctx.node.clock.wall()
        with ctx.spans.span("replay", characters=len(hit.text)):
            await send_cached(
                ctx,
                self.outbox,
                hit,
                model=choice.model,
                guard=guard,
                citations=handoff.prompt.citations,
                similarity=similarity,
            )
        record = row_without_call(
            ctx.envelope,
            choice.model,
            CACHED,
            hit.usage,
            hit.finish_reason,
            started_at=started_at,
            ended_at=ctx.node.clock.wall(),
        )
        with ctx.spans.span("ledger"):
            await asyncio.wait({self.books.write(record)}, timeout=LEDGER_SECONDS)

    def _remember(self, key: str, last: Attempt, ttl_seconds: float | None) -> bool:
        """Only whole answers, as the engine wrote them. False: this one is not kept."""
        if not last.can_be_repeated:
            return False
        if last.usage and last.finish_reason in ("stop", "tool_calls", "length"):
            calls = tuple(call for _, call in sorted(last.calls.items()))
            answer = CachedAnswer(last.text, last.finish_reason, last.usage, "".join(last.reasoning), calls)
            self.cache.put(key, answer, ttl_seconds)
        return self.cache.holds(key)


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


def _tell_if_lost(ctx: RequestContext, guard: str | None) -> None:
    """A guard that died with a short answer in its hands is found out when that is over for us, and the edge,
    which may not have heard of it yet, would wait. What comes behind an answer's end is heard by nobody."""
    if guard is None:
        return

    def on_lost(instance: str) -> None:
        spawn(ctx.fail(guard_lost(instance)))

    unwatch = ctx.node.leases.watch(guard, on_lost, on_closed=lambda _: None)
    asyncio.get_running_loop().call_later(GUARD_WATCHED_SECONDS, unwatch)
