"""A14: two edges, one limit: what both admit together is not above it; money too."""

from __future__ import annotations

import asyncio

from baton_common.buckets import open_bucket
from baton_common.money import parse_dollars
from baton_contracts.heartbeats import Lease
from baton_contracts.limits import AccountState, Budget, LimitRule, Slot, key_party, team_party, use_entry
from baton_contracts.subjects import BUCKET_LIMITS, lease
from tests.support.limited_edges import Held, LimitedEdges, limited_edges
from tests.support.waiting import eventually


async def _ask_everywhere(limited: LimitedEdges, each: int, **fields: object) -> list[int]:
    waits = [edge.ask(**fields) for _ in range(each) for edge in limited.edges]
    return [response.status_code for response in await asyncio.gather(*waits)]


async def test_requests_a_minute(nats_url: str) -> None:
    async with limited_edges(nats_url, LimitRule(requests_per_minute=30), count=2) as limited:
        statuses = await _ask_everywhere(limited, 40)
        assert (statuses.count(200), statuses.count(429)) == (30, 50)
        assert (await limited.use()).requests == 30
        await eventually(lambda: all(edge.edge.node.num_held == 0 for edge in limited.edges))


async def test_a_team_is_limited_beside_its_keys(nats_url: str) -> None:
    tenant = "tenant-of-a14"
    party = team_party(tenant, "ops")
    async with limited_edges(
        nats_url,
        LimitRule(requests_per_minute=100),
        count=2,
        key={"tenant_id": tenant, "team": "ops"},
        rules={party: LimitRule(requests_per_minute=7)},
    ) as limited:
        statuses = await _ask_everywhere(limited, 10)
        assert statuses.count(200) == 7
        assert (await limited.use(party)).requests == 7
        assert (await limited.use()).requests == 7  # refused by the team: given back to the key


async def test_a_budget(nats_url: str) -> None:
    """10 + 90 tokens of smollm2-135m cost $0.0000038; thirteen of them fit."""
    rule = LimitRule(budget=Budget(picos=parse_dollars("0.00005"), period="total"))
    script = Held(prompt_tokens=10, cached_tokens=0, completion_tokens=90)
    async with limited_edges(nats_url, rule, script, count=2) as limited:
        asked = [
            asyncio.create_task(edge.ask(model="smollm2-135m", max_tokens=90))
            for _ in range(10)
            for edge in limited.edges
        ]
        script.go_on.set()
        await asyncio.gather(*asked)
        state = await limited.use()
        assert state.held_picos == 0
        assert 0 < state.spent_picos <= parse_dollars("0.00005")
        assert state.spent_picos % parse_dollars("0.0000038") == 0  # 10 × 0.02 + 90 × 0.04 for a million
        admitted = sum(task.result().status_code == 200 for task in asked)
        assert state.spent_picos == admitted * parse_dollars("0.0000038")


async def test_the_seats_of_a_dead_edge_come_back_with_its_lease(nats_url: str) -> None:
    async with limited_edges(nats_url, LimitRule(concurrent=1)) as limited:
        bucket = await open_bucket(limited.bus.jetstream, BUCKET_LIMITS)
        left_behind = AccountState(slots={"edge_api-0dead000": Slot(seq=3, seats=1)})
        await bucket.put(use_entry(key_party(limited.key_id)), left_behind.encode())
        assert await limited.first.refusal() == (429, "rate_limit_exceeded")
        gone = Lease(service="edge_api", instance="edge_api-0dead000", state="gone")
        await limited.edges[0].edge.bus.publish(lease(gone.instance), gone.encode())
        await limited.edges[0].edge.bus.request_many("nobody.there", b"", timeout=20, enough=1)
        assert (await limited.first.ask()).status_code == 200
        assert list((await limited.use()).slots) == [limited.first.edge.node.instance]
