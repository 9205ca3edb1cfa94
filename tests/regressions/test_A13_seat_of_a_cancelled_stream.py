"""A13: one request at a time; a stream is cancelled; the next one is let in at once."""

from __future__ import annotations

from baton_contracts.limits import LimitRule
from tests.support.edge_process import QUESTION
from tests.support.limited_edges import CHAT, Held, limited_edges


async def test_the_seat_is_free_and_what_was_used_is_charged(nats_url: str) -> None:
    script = Held(prompt_tokens=10, completion_tokens=26)
    async with limited_edges(
        nats_url, LimitRule(concurrent=1, tokens_per_minute=5000), script, record_seconds=0.1
    ) as limited:
        body = QUESTION | {"stream": True, "max_tokens": 500}
        async with limited.first.client.stream("POST", CHAT, json=body) as response:
            assert response.status_code == 200
            assert (await limited.use()).seats == 1
            assert await limited.first.refusal() == (429, "rate_limit_exceeded")
        await limited.first.edge.relay.cancels.get()
        script.go_on.set()
        assert (await limited.first.ask(max_tokens=500)).status_code == 200
        await limited.first.edge.finished()
        state = await limited.use()
        assert (state.seats, state.tokens) == (0, 36 + 36)
