"""A11: 100 tokens a minute, a first short request without max_tokens: 200, and settled to the real use."""

from __future__ import annotations

from baton_contracts.limits import LimitRule
from tests.support.edge_process import Turn
from tests.support.limited_edges import limited_edges


async def test_a_guess_never_refuses_what_may_fit(nats_url: str) -> None:
    seen: list[int] = []

    async def script(turn: Turn) -> None:
        seen.append((await limited.use()).tokens)
        await turn.prologue()
        await turn.data("Hi.")
        await turn.end(prompt_tokens=9, completion_tokens=4)

    async with limited_edges(nats_url, LimitRule(tokens_per_minute=100), script) as limited:
        response = await limited.first.ask()
        assert response.status_code == 200
        assert response.headers["x-ratelimit-remaining-tokens"] == "0"
        assert (await limited.use()).tokens == 13
        response = await limited.first.ask()
        assert response.status_code == 200
        assert (await limited.use()).tokens == 26
    assert seen == [100, 13 + 10 + 8]  # all that was left; then the prompt and twice the answer seen before
