"""What a request finds in the response cache, exact or semantic, and what of its answer is kept there.

Owns which requests read and write the cache at all. The entries are response_cache's and semantic_cache's.
"""

from __future__ import annotations

from dataclasses import dataclass

from baton_common.context import RequestContext
from baton_common.routes import CacheRules
from baton_contracts.handoffs import GatewayHandoff
from baton_llm_gateway.attempt import Attempt
from baton_llm_gateway.model_choice import Choice
from baton_llm_gateway.response_cache import CachedAnswer, ResponseCache, cache_key, may_be_cached
from baton_llm_gateway.semantic_cache import SemanticCache, Similar
from baton_llm_gateway.semantic_key import Alike
from baton_llm_gateway.semantic_key import alike as alike_key


@dataclass(frozen=True)
class CachePolicy:
    version: str
    sampled_too: bool


@dataclass(frozen=True)
class Sought:
    key: str | None = None
    """None: this request neither reads the cache nor writes it."""
    alike: Alike | None = None
    hit: CachedAnswer | None = None
    similarity: float | None = None
    """Of the question that was answered, where that is another one."""


@dataclass(frozen=True)
class Recall:
    cache: ResponseCache
    semantic: SemanticCache
    policy: CachePolicy

    async def seek(
        self, ctx: RequestContext, handoff: GatewayHandoff, choice: Choice, rules: CacheRules
    ) -> Sought:
        found = await self._found(ctx, handoff, choice, rules)
        ctx.attributes["cache"] = "hit" if found.hit else "miss" if found.key else "off"
        if found.hit:
            ctx.attributes["cache_layer"] = "exact" if found.similarity is None else "semantic"
        return found

    def keep(self, sought: Sought, last: Attempt, ttl_seconds: float | None) -> None:
        """Only whole answers, as the engine wrote them."""
        key = sought.key
        if key is None or not last.can_be_repeated:
            return
        if last.usage and last.finish_reason in ("stop", "tool_calls", "length"):
            calls = tuple(call for _, call in sorted(last.calls.items()))
            answer = CachedAnswer(last.text, last.finish_reason, last.usage, "".join(last.reasoning), calls)
            self.cache.put(key, answer, ttl_seconds)
        if sought.alike and not last.calls and self.cache.holds(key):
            self.semantic.remember(sought.alike, key)

    async def _found(
        self, ctx: RequestContext, handoff: GatewayHandoff, choice: Choice, rules: CacheRules
    ) -> Sought:
        chat = handoff.chat
        if not chat.use_cache or not rules.enabled:
            return Sought()
        sampled_too = self.policy.sampled_too if rules.sampled is None else rules.sampled
        if not may_be_cached(chat.sampling, sampled_too=sampled_too):
            return Sought()
        key = self._key(ctx, handoff, choice)
        hit = self.cache.get(key, chat.cache_max_age)
        alike = self._alike(ctx, handoff, choice) if rules.semantic and hit is None else None
        if alike and (similar := await self._similar(ctx, handoff, alike, rules)):
            return Sought(key, alike, similar.answer, similar.similarity)
        return Sought(key, alike, hit)

    def _key(self, ctx: RequestContext, handoff: GatewayHandoff, choice: Choice) -> str:
        return cache_key(
            tenant_id=ctx.envelope.tenant.tenant_id,
            model=choice.model,
            prompt=handoff.prompt,
            chat=handoff.chat,
            policy_version=self.policy.version,
        )

    def _alike(self, ctx: RequestContext, handoff: GatewayHandoff, choice: Choice) -> Alike | None:
        return alike_key(
            tenant_id=ctx.envelope.tenant.tenant_id,
            model=choice.model,
            prompt=handoff.prompt,
            chat=handoff.chat,
            policy_version=self.policy.version,
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
