"""A15, the edge's part: headers on a stream; an own 429 has usable waits; a provider's is kept."""

from __future__ import annotations

import re

from baton_contracts.errors import ErrorBody
from baton_contracts.limits import LimitRule
from tests.support.edge_process import Turn
from tests.support.limited_edges import limited_edges

RESET = re.compile(r"\d+(\.\d+)?s|\d+ms")


async def test_a_stream_and_a_refusal_say_where_the_limits_stand(nats_url: str) -> None:
    rule = LimitRule(requests_per_minute=1, tokens_per_minute=300)
    async with limited_edges(nats_url, rule) as limited:
        stream = await limited.first.ask(stream=True, max_tokens=90)
        assert stream.headers["content-type"].startswith("text/event-stream")
        shown = {name: value for name, value in stream.headers.items() if name.startswith("x-ratelimit")}
        assert RESET.fullmatch(shown.pop("x-ratelimit-reset-requests"))
        assert RESET.fullmatch(shown.pop("x-ratelimit-reset-tokens"))
        assert shown == {
            "x-ratelimit-limit-requests": "1",
            "x-ratelimit-remaining-requests": "0",
            "x-ratelimit-limit-tokens": "300",
            "x-ratelimit-remaining-tokens": "200",
        }
        refused = await limited.first.ask(max_tokens=90)
        assert refused.status_code == 429
        assert refused.headers["x-ratelimit-remaining-requests"] == "0"
        assert refused.headers["x-ratelimit-remaining-tokens"] == "292"  # settled: 5 + 3
        wait = float(refused.headers["retry-after-ms"])
        assert 0 < wait <= 60_000
        assert int(refused.headers["retry-after"]) == -(-wait // 1000)
        assert "x-should-retry" not in refused.headers


async def test_a_providers_wait_is_kept(nats_url: str) -> None:
    async def busy_provider(turn: Turn) -> None:
        text = "The provider has had enough."
        await turn.error(
            ErrorBody(code="rate_limit_exceeded", message=text, stop="llm_gateway", retry_after_seconds=30)
        )

    async with limited_edges(nats_url, LimitRule(requests_per_minute=9), busy_provider) as limited:
        response = await limited.first.ask()
        assert (response.status_code, response.headers["retry-after"]) == (429, "30")
        assert response.headers["retry-after-ms"] == "30000"
        assert (await limited.use()).requests == 0


async def test_what_can_never_fit_is_not_worth_a_retry(nats_url: str) -> None:
    async with limited_edges(nats_url, LimitRule(tokens_per_minute=100)) as limited:
        response = await limited.first.ask(max_tokens=500)
        assert (response.status_code, response.headers["x-should-retry"]) == (429, "false")
        assert "this request alone may take 510" in response.json()["error"]["message"]
        assert limited.num_turns == 0
