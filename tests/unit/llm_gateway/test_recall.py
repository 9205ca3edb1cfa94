"""What a request finds in the cache, and what is worked out for that."""

from __future__ import annotations

from baton_common.clock import Clock
from baton_common.memory_bus import MemoryBus
from baton_common.routes import CacheRules
from baton_contracts.frames import Usage
from baton_contracts.prompt import Message, Part, Prompt
from baton_llm_gateway.likeness import Vectors
from baton_llm_gateway.recall import CachePolicy, Recall
from baton_llm_gateway.response_cache import CachedAnswer, ResponseCache
from baton_llm_gateway.semantic_cache import SemanticCache
from tests.support.errands import errand_over

ANSWER = CachedAnswer("Hello.", "stop", Usage(prompt_tokens=7, completion_tokens=2))


async def nobody(*_: object) -> Vectors | None:
    return None


async def test_where_the_very_question_was_asked_before_no_similar_one_is_sought() -> None:
    errand = errand_over(MemoryBus())
    asked = Message(role="user", parts=(Part(text="What is the capital of France?"),))
    handoff = errand.handoff.model_copy(update={"prompt": Prompt(messages=(asked,))})
    cache = ResponseCache(Clock(), max_bytes=10_000, ttl_seconds=60)
    recall = Recall(cache, SemanticCache(cache, nobody, max_bytes=10_000), CachePolicy("1", sampled_too=True))
    rules = CacheRules(semantic=True)
    missed = await recall.seek(errand.ctx, handoff, errand.choice, rules)
    assert missed.key
    assert missed.alike
    assert missed.hit is None
    cache.put(missed.key, ANSWER)
    found = await recall.seek(errand.ctx, handoff, errand.choice, rules)
    assert (found.hit, found.similarity, found.alike) == (ANSWER, None, None)
    assert errand.ctx.attributes["cache_layer"] == "exact"
