"""Budgets of which not all may be counted come to what the ledger says by themselves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from prometheus_client import CollectorRegistry

from baton_common.errors import RequestFailed
from baton_common.leases import LeaseBoard
from baton_common.memory_bus import MemoryBus
from baton_common.money import Price
from baton_common.spending import Payer
from baton_contracts.identifiers import subject_token
from baton_contracts.limits import (
    AccountState,
    Budget,
    BudgetPeriod,
    Doubt,
    LimitRule,
    model_party,
    team_party,
    use_entry,
)
from baton_edge_api.limits import recounts as recounts_module
from baton_edge_api.limits.accounts import Accounts
from baton_edge_api.limits.figures import LimitFigures
from baton_edge_api.limits.gone_edges import GoneEdges
from baton_edge_api.limits.holds import Hold, Use
from baton_edge_api.limits.recounts import Recounts
from baton_edge_api.limits.rules import RuleBook
from baton_edge_api.limits.tally import LATE_SECONDS, LOOK_AGAIN_SECONDS
from baton_edge_api.limits.wish import Wish
from tests.support.memory_bucket import MemoryBucket
from tests.support.relay import HandClock, eventually

T0 = 1_796_000_000.0  # 2026-11-30 01:33:20 UTC
KEY = "key.k1"
TEAM = team_party("acme", "ops")
SMALL = model_party("small")
AUTO = model_party("auto")
RULE = LimitRule(budget=Budget(picos=10_000, period="month"))


@dataclass
class Books:
    """The ledger of this test: what each has spent."""

    spent_by: dict[str, int] = field(default_factory=dict[str, int])
    away: bool = False
    asked: list[tuple[Payer, BudgetPeriod]] = field(default_factory=list[tuple[Payer, BudgetPeriod]])

    async def spent(self, payer: Payer, state: AccountState, period: BudgetPeriod, now: float) -> int:
        self.asked.append((payer, period))
        if self.away:
            raise RequestFailed.because("stop_unresponsive", "after_answer is away.")
        return self.spent_by.get(payer.name, 0)


class Tenants:
    def tenant_of_key(self, key_id: str) -> str | None:
        return "acme" if key_id == "k1" else None

    def tenant_ids(self) -> list[str]:
        return ["acme", "other"]


@dataclass
class Scene:
    bucket: MemoryBucket = field(default_factory=MemoryBucket)
    books: Books = field(default_factory=Books)
    now: float = T0
    rule: LimitRule = RULE

    def accounts(self, name: str = "edge-1") -> Accounts:
        gone = GoneEdges(LeaseBoard(MemoryBus(), HandClock().clock, name))
        return Accounts(self.rules, self.bucket, gone, edge=name, wall=lambda: self.now)

    @property
    def rules(self) -> RuleBook:
        rules = RuleBook(lambda _: self.rule)
        rules.replace({f"rule.{party}": self.rule.encode() for party in (TEAM, SMALL, AUTO)})
        return rules

    @asynccontextmanager
    async def looking(self, *edges: Accounts) -> AsyncGenerator[None]:
        tasks = [
            asyncio.create_task(
                Recounts(
                    accounts,
                    self.books,
                    self.rules,
                    Tenants(),
                    LimitFigures(CollectorRegistry(), lambda: 0),
                    stands_for=lambda name: ("small", "large") if name == "auto" else (name,),
                    wall=lambda: self.now,
                ).run()
            )
            for accounts in edges
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def state(self, party: str = KEY) -> AccountState:
        return self.bucket.state(party)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(recounts_module, "LOOK_SECONDS", 0.001)
    caplog.set_level(logging.INFO)


async def spend(accounts: Accounts, picos: int, party: str = KEY, number: int = 1) -> None:
    grant = accounts.new_grant()
    run = f"{subject_token('acme')}.{number:032x}.{number:08x}.1"
    outcome = await accounts.reserve(party, grant, Wish(0, 1, Price(0, 0, picos)), run)
    assert isinstance(outcome.result, Hold)
    await accounts.settle(party, grant, Use(1, picos))


async def lose(accounts: Accounts, number: int) -> None:
    """A request whose end its edge does not hear."""
    grant = accounts.new_grant()
    run = f"{subject_token('acme')}.{number:032x}.{number:08x}.1"
    await accounts.reserve(KEY, grant, Wish(0, 1, Price(0, 0, 10)), run)
    await accounts.release(KEY, grant, may_cost=True)


async def test_a_budget_that_begins_in_the_middle_of_its_period_counts_what_was_spent_before() -> None:
    """It was just set, or its entry was lost with the store, or was damaged."""
    scene = Scene()
    accounts = scene.accounts()
    await spend(accounts, 50)
    assert scene.state().spent_picos == 50
    scene.books.spent_by["k1"] = 450
    async with scene.looking(accounts):
        await eventually(lambda: scene.state().spent_picos == 450)
    assert scene.books.asked[0] == (Payer("key", "k1", ("acme",)), "month")


@pytest.mark.parametrize(("before", "doubted"), [("2026-10", False), ("2026-11-29", True), ("total", True)])
async def test_the_next_period_begins_at_nothing_and_one_of_another_length_is_looked_up(
    before: str, *, doubted: bool
) -> None:
    state = AccountState(period=before, spent_picos=700)
    scene = Scene(MemoryBucket({use_entry(KEY): (state.encode(), 1)}))
    await spend(scene.accounts(), 50)
    assert (scene.state().spent_picos, scene.state().doubt is not None) == (50, doubted)


async def test_it_is_looked_up_again_each_time_the_doubt_is_twice_as_old_for_a_day() -> None:
    scene = Scene()
    accounts = scene.accounts()
    await spend(accounts, 50)
    ages: list[float] = []
    async with scene.looking(accounts):
        while doubt := scene.state().doubt:
            scene.now = doubt.look_at
            ages.append(scene.now - T0)
            await eventually(lambda seen=doubt: scene.state().doubt != seen)
    assert ages == [0] + [LOOK_AGAIN_SECONDS * 2**times for times in range(12)]
    assert ages[-2] < 86_400 <= ages[-1]


async def test_late_rows_that_are_too_many_to_be_named_are_found_all_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("baton_edge_api.limits.tally.MOST_LATE", 2)
    scene = Scene(MemoryBucket({use_entry(KEY): (AccountState(period="2026-11").encode(), 1)}))
    accounts = scene.accounts()
    for number in (1, 2):
        await lose(accounts, number)
    assert scene.state().doubt is None
    await lose(accounts, 3)
    assert scene.state().doubt == Doubt(since=T0, look_at=T0 + LATE_SECONDS)
    scene.books.spent_by["k1"] = 30
    async with scene.looking(accounts):
        scene.now += LATE_SECONDS
        await eventually(lambda: scene.state().spent_picos == 30)


async def test_what_the_ledger_does_not_have_yet_stays_spent() -> None:
    scene = Scene()
    accounts = scene.accounts()
    await spend(accounts, 50)
    scene.books.spent_by["k1"] = 20
    async with scene.looking(accounts):
        await eventually(lambda: bool((doubt := scene.state().doubt) and doubt.look_at > T0))
    assert scene.state().spent_picos == 50


async def test_several_edges_raise_it_once_though_what_they_last_saw_is_old() -> None:
    scene = Scene()
    edges = [scene.accounts(f"edge-{number}") for number in range(3)]
    for edge in edges:
        await spend(edge, 10)
    scene.books.spent_by["k1"] = 330
    async with scene.looking(*edges):
        await eventually(lambda: scene.state().spent_picos > 30)
        await eventually(lambda: not any(edge.doubted(scene.now) for edge in edges))
    assert scene.state().spent_picos == 330


async def test_a_request_that_comes_meanwhile_is_counted_beside_it() -> None:
    """The ledger is asked between two writes of another edge: its answer is of an account that is no more."""
    scene = Scene()
    one, two = scene.accounts("edge-1"), scene.accounts("edge-2")
    await spend(one, 10)
    seen = await one.read(KEY)
    await spend(two, 7, number=2)
    assert await one.raise_spent(KEY, seen, 400) is None
    assert await one.raise_spent(KEY, await one.read(KEY), 400) is not None
    assert scene.state().spent_picos == 400


async def test_while_the_books_are_away_it_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    accounts = scene.accounts()
    await spend(accounts, 50)
    scene.books.away = True
    scene.books.spent_by["k1"] = 60
    async with scene.looking(accounts):
        await eventually(lambda: "budgets can't be recounted now: after_answer is away." in caplog.text)
        scene.books.away = False
        await eventually(lambda: scene.state().spent_picos == 60)


async def test_a_store_that_is_back_with_what_it_knew_once_is_put_right() -> None:
    scene = Scene()
    accounts = scene.accounts()
    scene.bucket.values[use_entry(KEY)] = (AccountState(period="2026-11").encode(), 1)
    await spend(accounts, 50)
    value, revision = scene.bucket.values[use_entry(KEY)]
    await spend(accounts, 70, number=2)
    scene.bucket.values[use_entry(KEY)] = (value, revision - 1)
    await spend(accounts, 5, number=3)
    assert scene.state().spent_picos == 50 + 5
    scene.books.spent_by["k1"] = 125
    async with scene.looking(accounts):
        await eventually(lambda: scene.state().spent_picos == 125)


async def test_a_team_and_a_model_are_looked_up_and_what_stands_for_several_models_is_not() -> None:
    scene = Scene()
    accounts = scene.accounts()
    for party in (AUTO, TEAM, SMALL):
        await spend(accounts, 50, party)
    scene.books.spent_by |= {"ops": 60, "small": 70, "auto": 80}
    async with scene.looking(accounts):
        await eventually(lambda: scene.state(SMALL).spent_picos == 70)
    assert [scene.state(party).spent_picos for party in (TEAM, AUTO)] == [60, 50]
    payers = [payer for payer, _ in scene.books.asked]
    assert payers[:2] == [Payer("team", "ops", ("acme",)), Payer("model", "small", ["acme", "other"])]


async def test_what_was_spent_while_there_was_no_budget_counts_when_there_is_one_again() -> None:
    scene = Scene(rule=LimitRule(budget=Budget(picos=10_000, period="month")))
    accounts = scene.accounts()
    scene.bucket.values[use_entry(KEY)] = (AccountState(period="2026-11").encode(), 1)
    await spend(accounts, 50)
    assert scene.state().doubt is None
    scene.rule = LimitRule(requests_per_minute=100)
    await spend(accounts, 300, number=2)
    scene.rule = LimitRule(budget=Budget(picos=10_000, period="month", set_at=T0 + 5))
    await spend(accounts, 7, number=3)
    assert scene.state().spent_picos == 50 + 7
    scene.books.spent_by["k1"] = 357
    async with scene.looking(accounts):
        await eventually(lambda: scene.state().spent_picos == 357)
