"""A12: 100 refused requests, and a window later everything is there again."""

from __future__ import annotations

from baton_contracts.errors import ErrorBody
from baton_contracts.limits import LimitRule
from tests.support.edge_process import Turn, hello
from tests.support.limited_edges import Time, limited_edges, wall_time

__all__ = ["wall_time"]


async def test_refused_requests_are_not_counted(nats_url: str, wall_time: Time) -> None:
    rule = LimitRule(requests_per_minute=2, tokens_per_minute=1000)
    async with limited_edges(nats_url, rule) as limited:
        for _ in range(2):
            assert (await limited.first.ask(max_tokens=20)).status_code == 200
        before = await limited.use()
        for _ in range(100):
            assert await limited.first.refusal(max_tokens=20) == (429, "rate_limit_exceeded")
        assert await limited.use() == before
        wall_time.ahead = 60
        answer = await limited.first.ask(max_tokens=20)
        assert answer.status_code == 200
        assert answer.headers["x-ratelimit-remaining-requests"] == "1"
        assert answer.headers["x-ratelimit-remaining-tokens"] == str(1000 - 10 - 20)
        assert limited.num_turns == 3


async def test_what_the_relay_refuses_is_given_back(nats_url: str) -> None:
    async def no_room(turn: Turn) -> None:
        text = "No replica has room."
        await turn.error(
            ErrorBody(code="no_ready_replica", message=text, stop="inference_router", retry_after_seconds=2)
        )

    rule = LimitRule(requests_per_minute=5, tokens_per_minute=1000, concurrent=2)
    async with limited_edges(nats_url, rule, no_room) as limited:
        for _ in range(10):
            assert await limited.first.refusal(max_tokens=100) == (503, "no_ready_replica")
        state = await limited.use()
        assert (state.requests, state.tokens, state.seats) == (0, 0, 0)


async def test_what_is_not_valid_is_not_counted_but_told_where_it_stands(nats_url: str) -> None:
    async with limited_edges(nats_url, LimitRule(requests_per_minute=5), hello) as limited:
        assert (await limited.first.ask()).status_code == 200
        response = await limited.first.ask(temperature=3)
        assert response.status_code == 400
        assert response.headers["x-ratelimit-remaining-requests"] == "4"
        assert (await limited.use()).requests == 1
