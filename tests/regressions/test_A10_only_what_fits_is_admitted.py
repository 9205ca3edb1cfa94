"""A10: 100 tokens a minute, five at once of 60 each: one is let in, four get 429 before the engine."""

from __future__ import annotations

import asyncio

from baton_contracts.limits import LimitRule
from tests.support.limited_edges import PROMPT_TOKENS, Held, limited_edges


async def test_one_of_five_is_admitted(nats_url: str) -> None:
    script = Held(prompt_tokens=10, completion_tokens=40)
    async with limited_edges(nats_url, LimitRule(tokens_per_minute=100), script) as limited:
        refused: list[int] = []
        four = asyncio.Event()

        async def ask() -> int:
            response = await limited.first.ask(max_tokens=60 - PROMPT_TOKENS, stream=True)
            if response.status_code != 200:
                refused.append(response.status_code)
                assert 1 <= int(response.headers["retry-after"]) <= 60
                assert 0 < int(response.headers["retry-after-ms"]) <= 60_000
                assert response.json()["error"]["code"] == "rate_limit_exceeded"
            if len(refused) == 4:
                four.set()
            return response.status_code

        asked = [asyncio.create_task(ask()) for _ in range(5)]
        await asyncio.wait_for(four.wait(), 10)
        assert (await limited.use()).tokens == 60
        assert limited.num_turns == 1
        script.go_on.set()
        assert sorted(await asyncio.gather(*asked)) == [200, 429, 429, 429, 429]
        assert (await limited.use()).tokens == 50
