"""What one request holds in its accounts: what it gives back, and who hears of a budget nearly spent."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from baton_common.catalog import Alias, Catalog, load_catalog
from baton_common.leases import LeaseBoard
from baton_common.memory_bus import MemoryBus
from baton_contracts.envelope import Tenant
from baton_contracts.frames import Usage
from baton_contracts.identifiers import new_request_id
from baton_contracts.limits import AccountState, Budget, LimitRule, Run, model_party, use_entry
from baton_edge_api.exchange import Exchange
from baton_edge_api.limits import lane
from baton_edge_api.limits.accounts import Accounts
from baton_edge_api.limits.admission import Admission
from baton_edge_api.limits.asked import Asked
from baton_edge_api.limits.figures import LimitFigures
from baton_edge_api.limits.gone_edges import GoneEdges
from baton_edge_api.limits.grant import Grant
from baton_edge_api.limits.rules import RuleBook
from tests.support.memory_bucket import MemoryBucket
from tests.support.relay import HandClock

T0 = 1_796_000_000.0
PARTY = "key.k1"
MODEL = "smollm2-135m"


def admission(
    bucket: MemoryBucket, rule: LimitRule | None, catalog: Catalog | None = None, **rules_of: LimitRule
) -> tuple[Admission, Accounts]:
    rules = RuleBook(lambda _: rule)
    rules.replace({f"rule.{party}": each.encode() for party, each in rules_of.items()})
    gone = GoneEdges(LeaseBoard(MemoryBus(), HandClock().clock, "edge-1"))
    accounts = Accounts(rules, bucket, gone, edge="edge-1", wall=lambda: T0)
    figures = LimitFigures(CollectorRegistry(), lambda: 0)
    return Admission(rules, accounts, catalog or load_catalog(), figures, lambda _: frozenset()), accounts


async def prompt_tokens() -> int:
    return 10


@pytest.mark.parametrize("alerted", [False, True])
async def test_a_budget_that_was_found_spent_is_told_by_the_next_request(
    *, alerted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A recount, or a lower budget, came before it: its reservation is the first change to find it so."""
    spent = AccountState(period="total", spent_picos=900_000_000, alerted=alerted)
    bucket = MemoryBucket({use_entry(PARTY): (spent.encode(), 1)})
    may_come, _ = admission(
        bucket, LimitRule(budget=Budget(picos=1_000_000_000, period="total", alert_percent=80))
    )
    exchange = Exchange("0" * 32, T0)
    asked = Asked(MODEL, prompt_tokens, Run("t", exchange.request_id, "0" * 8), max_output_tokens=10)
    grant = await may_come.admit(Tenant(tenant_id="t", key_id="k1"), asked, exchange)
    await grant.settle(Usage(prompt_tokens=10, completion_tokens=5), MODEL)
    assert grant.alerts == ([] if alerted else [PARTY])
    assert caplog.text.count("budget of key.k1: 90% is spent") == (0 if alerted else 1)


async def test_where_an_alias_was_asked_and_no_end_heard_any_of_its_models_may_have_cost_something() -> None:
    """The client left before it was known who answers: the ledger will name it."""
    bucket = MemoryBucket()
    catalog = load_catalog()
    alias, models = next((name, catalog.may_stand_for(name)) for name in catalog.aliases)
    rule = LimitRule(budget=Budget(picos=10**12, period="total"))
    may_come, accounts = admission(bucket, None, **{model_party(name): rule for name in (alias, *models)})
    exchange = Exchange("0" * 32, T0)
    run = Run("t", exchange.request_id, "0" * 8)
    asked = Asked(alias, prompt_tokens, run, max_output_tokens=10)
    grant = await may_come.admit(Tenant(tenant_id="t", key_id="k1"), asked, exchange)
    await grant.settle(Usage(), alias, is_all=False)
    assert await accounts.flush(5)
    for name in (alias, *models):
        state = bucket.state(model_party(name))
        assert (state.held_picos, state.spent_picos, state.late.keys()) == (0, 0, {run.name})


async def test_far_from_its_limits_a_model_that_did_not_answer_costs_no_write_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lane, "PATIENCE_SECONDS", 3600.0)
    bucket = MemoryBucket()
    small, large = model_party("small"), model_party("large")
    catalog = Catalog({}, {"auto": Alias("auto", "small", "large", "either")})
    limits = dict.fromkeys((small, large), LimitRule(tokens_per_minute=1000))
    may_come, accounts = admission(bucket, None, catalog, **limits)

    async def next_one() -> Grant:
        exchange = Exchange(new_request_id(), T0)
        run = Run("t", exchange.request_id, "0" * 8)
        asked = Asked("auto", prompt_tokens, run, max_output_tokens=8)
        return await may_come.admit(Tenant(tenant_id="t", key_id="k1"), asked, exchange)

    grant = await next_one()
    assert [bucket.state(party).tokens for party in (small, large)] == [18, 18]
    written = bucket.num_writes
    await grant.settle(Usage(prompt_tokens=10, completion_tokens=3), "small")
    for _ in range(20):
        await asyncio.sleep(0)
    assert bucket.num_writes == written  # both wait for the next request

    await next_one()
    assert [bucket.state(party).tokens for party in (small, large)] == [13 + 18, 18]
    assert await accounts.flush(1)
