"""A22: the budget is spent: 429 `insufficient_quota` and x-should-retry: false."""

from __future__ import annotations

import json

from baton_common.money import parse_dollars
from baton_contracts.limits import Budget, LimitRule
from tests.support.edge_process import Turn
from tests.support.limited_edges import Time, limited_edges, wall_time

__all__ = ["wall_time"]

PRICE = "0.0000062"
"""Of 150 + 80 tokens by smollm2-135m: 150 × 0.02 + 80 × 0.04 dollars for a million."""


async def script(turn: Turn) -> None:
    await turn.prologue()
    await turn.data("Hi.")
    await turn.end(prompt_tokens=150, cached_tokens=0, completion_tokens=80)


async def test_no_client_tries_again(nats_url: str, wall_time: Time) -> None:
    rule = LimitRule(budget=Budget(picos=parse_dollars("0.00002"), period="day", alert_percent=60))
    async with limited_edges(nats_url, rule, script) as limited:
        ask = limited.first.ask
        answers = [await ask(model="smollm2-135m") for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200] * 4  # 3 × 6.2 of 20 are spent, then 24.8
        assert ["x-baton-budget-alert" in answer.headers for answer in answers] == [False, False, True, True]
        refused = await ask(model="smollm2-135m")
        assert refused.status_code == 429
        error = refused.json()["error"]
        assert (error["code"], error["type"]) == ("insufficient_quota", "rate_limit_error")
        assert refused.headers["x-should-retry"] == "false"
        assert "a budget of $0.00002, and it is spent" in error["message"]
        assert (await limited.use()).spent_picos == 4 * parse_dollars(PRICE)
        metrics = (await limited.first.client.get("/metrics")).text
        assert 'baton:budget_alerts_total{party="key"} 1.0' in metrics
        assert 'baton:limit_refused_total{kind="budget",party="key"} 1.0' in metrics
        wall_time.ahead = 86_400
        assert (await ask(model="smollm2-135m")).status_code == 200


async def test_an_answer_from_the_cache_costs_nothing(nats_url: str) -> None:
    async def cached(turn: Turn) -> None:
        await turn.prologue(cache="exact", replica="cache")
        await turn.data("Hi.")
        await turn.end(prompt_tokens=150, completion_tokens=80)

    rule = LimitRule(budget=Budget(picos=parse_dollars("1"), period="total"), tokens_per_minute=5000)
    async with limited_edges(nats_url, rule, cached) as limited:
        assert json.loads((await limited.first.ask()).text)["usage"]["total_tokens"] == 230
        state = await limited.use()
        assert (state.spent_picos, state.held_picos, state.tokens) == (0, 0, 230)
