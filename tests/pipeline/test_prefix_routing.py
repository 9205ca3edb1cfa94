"""The router over a real NATS server, with its own permissions, between two real engines."""

from __future__ import annotations

import asyncio

from baton_contracts.prompt import Sampling
from baton_contracts.spans import Span
from baton_engine import AsyncEngine
from tests.support.relay_stage import Stage, question
from tests.support.tiny_model import tiny_config, tiny_parts
from tests.support.waiting import eventually

SAMPLING = Sampling(temperature=0, max_tokens=4, ignore_eos=True)
LONG = question("All that is gold does not glitter, not all those who wander are lost. " * 3)


async def dispatch_span(stage: Stage, request_id: str) -> Span:
    def found() -> list[Span]:
        return [span for span in stage.spans.get(request_id, []) if span.name == "dispatch"]

    await eventually(lambda: bool(found()))
    return found()[0]


async def test_a_second_question_goes_where_the_first_was_computed(stage: Stage) -> None:
    for _ in range(2):
        await stage.worker(AsyncEngine(tiny_config(), tiny_parts()))
    await asyncio.gather(stage.guard(), stage.router(router_tokens_seconds=5.0), stage.gateway())
    replicas: list[str] = []
    for _ in range(2):
        heard = await stage.ask(prompt=LONG, sampling=SAMPLING, use_cache=False)
        assert heard.end is not None
        replicas.append(heard.prologues[0].replica)
    last = await dispatch_span(stage, heard.request_id)

    assert replicas[0] == replicas[1]
    tokens = heard.end.usage.prompt_tokens
    cached = (tokens - 1) // 16 * 16
    assert (last.attributes["prompt_tokens"], last.attributes["cached_tokens"]) == (tokens, cached)
    assert heard.end.usage.cached_tokens == cached
