"""A request under an alias reserves with each model that may answer, and gives back what another one kept."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from baton_common.catalog import Alias, Catalog
from baton_common.clock import Clock
from baton_common.leases import LeaseBoard
from baton_common.memory_bus import MemoryBus
from baton_contracts.envelope import Tenant
from baton_contracts.frames import Usage
from baton_contracts.identifiers import new_request_id
from baton_contracts.limits import LimitRule, Run, model_party, rule_entry
from baton_edge_api.exchange import Exchange
from baton_edge_api.limits import lane
from baton_edge_api.limits.accounts import Accounts
from baton_edge_api.limits.admission import Admission, Asked
from baton_edge_api.limits.figures import LimitFigures
from baton_edge_api.limits.gone_edges import GoneEdges
from baton_edge_api.limits.rules import RuleBook
from tests.support.memory_bucket import MemoryBucket

TENANT = Tenant(tenant_id="acme", team="research", key_id="k1")
SMALL, LARGE = model_party("small"), model_party("large")


async def twelve_tokens() -> int:
    return 12


def asked() -> Asked:
    run = Run(TENANT.tenant_id, new_request_id(), "0a1b2c3d")
    return Asked("auto", twelve_tokens, run, max_output_tokens=8)


async def test_far_from_its_limits_a_model_that_did_not_answer_costs_no_write_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lane, "PATIENCE_SECONDS", 3600.0)
    bucket, clock = MemoryBucket(), Clock()
    rules = RuleBook(lambda key_id: None)
    limit = LimitRule(tokens_per_minute=1000).encode()
    rules.replace({rule_entry(party): limit for party in (SMALL, LARGE)})
    gone = GoneEdges(LeaseBoard(MemoryBus(), clock))
    accounts = Accounts(rules, bucket, gone, edge="edge_api-1", wall=clock.wall)
    figures = LimitFigures(CollectorRegistry(), lambda: accounts.num_held)
    catalog = Catalog({}, {"auto": Alias("auto", "small", "large", "either")})
    admission = Admission(rules, accounts, catalog, figures, lambda key_id: frozenset())

    grant = await admission.admit(TENANT, asked(), Exchange(new_request_id(), clock.wall()))
    assert [bucket.state(party).tokens for party in (SMALL, LARGE)] == [20, 20]
    written = bucket.num_writes
    await grant.settle(Usage(prompt_tokens=12, completion_tokens=3), "small")
    for _ in range(20):
        await asyncio.sleep(0)
    assert bucket.num_writes == written  # both wait for the next request

    await admission.admit(TENANT, asked(), Exchange(new_request_id(), clock.wall()))
    assert [bucket.state(party).tokens for party in (SMALL, LARGE)] == [15 + 20, 20]
    assert await accounts.flush(1)
