"""What an edge that is gone had reserved: settled from the ledger, once, by whoever lives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from prometheus_client import CollectorRegistry

from baton_common.errors import RequestFailed
from baton_common.leases import LeaseBoard
from baton_common.memory_bus import MemoryBus
from baton_common.money import Price
from baton_contracts import subjects
from baton_contracts.envelope import Tenant
from baton_contracts.frames import Usage
from baton_contracts.heartbeats import Lease
from baton_contracts.limits import AccountState, Budget, LimitRule, Run
from baton_contracts.records import Outcome, UsageRecord
from baton_edge_api.limits import left_behind
from baton_edge_api.limits.accounts import Accounts
from baton_edge_api.limits.figures import LimitFigures
from baton_edge_api.limits.gone_edges import GoneEdges
from baton_edge_api.limits.holds import Hold, Use
from baton_edge_api.limits.left_behind import LeftBehind
from baton_edge_api.limits.rules import RuleBook
from baton_edge_api.limits.run_costs import RunCosts
from baton_edge_api.limits.tally import LATE_SECONDS
from baton_edge_api.limits.wish import Wish
from tests.support.memory_bucket import MemoryBucket
from tests.support.relay import HandClock, eventually

T0 = 1_796_000_000.0  # 2026-11-30 01:33:20 UTC
DAY_BEGAN = 1_795_996_800.0
KEY = "key.k1"
SMALL = "model.small"
AUTO = "model.auto"
PRICE = Price(1, 1, 10)
RULE = LimitRule(tokens_per_minute=1000, concurrent=2, budget=Budget(picos=10_000, period="day"))


def run(number: int) -> Run:
    return Run("acme", f"{number:032x}", f"{number:08x}")


def row(
    of: Run,
    *,
    completion: int = 5,
    model: str = "small",
    ended_at: float = T0,
    attempt: int = 1,
    outcome: Outcome = "cancelled",
    stand_in: bool = False,
) -> UsageRecord:
    return UsageRecord(
        request_id=of.request_id,
        run_id=of.run_id,
        attempt=attempt,
        tenant=Tenant(tenant_id=of.tenant_id, key_id="k1"),
        model=model,
        replica="engine-1",
        usage=Usage(prompt_tokens=10, completion_tokens=completion),
        outcome=outcome,
        stand_in=stand_in,
        cost_picos=10 + 10 * completion,
        started_at=ended_at - 1,
        ended_at=ended_at,
    )


@dataclass
class Books:
    """The ledger of this test."""

    rows_of: dict[Run, list[UsageRecord]] = field(default_factory=dict[Run, list[UsageRecord]])
    away: bool = False
    num_asked: int = 0

    async def rows(self, runs: Collection[Run]) -> Mapping[Run, list[UsageRecord]]:
        self.num_asked += 1
        if self.away:
            raise RequestFailed.because("stop_unresponsive", "after_answer is away.")
        return {each: self.rows_of[each] for each in runs if each in self.rows_of}


@dataclass
class Edge:
    accounts: Accounts
    left_behind: LeftBehind
    registry: CollectorRegistry
    board: LeaseBoard
    gone: GoneEdges

    @property
    def num_lost_runs(self) -> float:
        return self.registry.get_sample_value("baton:limit_lost_runs_total") or 0.0

    @property
    def watched(self) -> Collection[str]:
        return self.gone._watched  # pyright: ignore[reportPrivateUsage]


class Scene:
    """Some edges over one bucket; those that are started look for what others left behind."""

    def __init__(self) -> None:
        self.bus = MemoryBus()
        self.clock = HandClock()
        self.bucket = MemoryBucket()
        self.books = Books()
        self.now = T0
        self.rules = RuleBook(lambda _: RULE)
        self.rules.replace({f"rule.{party}": RULE.encode() for party in (SMALL, AUTO)})

    async def edge(self, name: str) -> Edge:
        board = LeaseBoard(self.bus, self.clock.clock, lost_after=3)
        await board.start()
        gone = GoneEdges(board)
        accounts = Accounts(self.rules, self.bucket, gone, edge=name, wall=lambda: self.now)
        registry = CollectorRegistry()
        looks = LeftBehind(
            accounts,
            gone,
            self.bucket,
            self.books,
            RunCosts(
                rule=self.rules.rule,
                stands_for=lambda model: ("small", "large") if model == "auto" else (model,),
                wall=lambda: self.now,
            ),
            LimitFigures(registry, lambda: 0),
            living=lambda: board.ready_instances("edge_api"),
            edge=name,
        )
        return Edge(accounts, looks, registry, board, gone)

    async def say(self, name: str, state: str = "ready") -> None:
        lease = Lease(service="edge_api", instance=name, state=state)  # type: ignore[arg-type]
        await self.bus.publish(subjects.lease(name), lease.encode())

    @asynccontextmanager
    async def looking(self, *edges: Edge, watch: str = "edge-1") -> AsyncGenerator[None]:
        tasks = [asyncio.create_task(edge.left_behind.run()) for edge in edges]
        try:
            await eventually(lambda: all(watch in edge.watched for edge in edges))
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def state(self, party: str = KEY) -> AccountState:
        return self.bucket.state(party)


async def reserve(edge: Edge, number: int, party: str = KEY, output: int = 20) -> int:
    grant = edge.accounts.new_grant()
    outcome = await edge.accounts.reserve(party, grant, Wish(10, output, PRICE), run(number).name)
    assert isinstance(outcome.result, Hold)
    return grant


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_behind, "REST_SECONDS", 0.0)
    monkeypatch.setattr(left_behind, "LATE_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(left_behind, "OWN_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(left_behind, "_TURN_SECONDS", 0.0)
    monkeypatch.setattr(left_behind, "_LOOK_SECONDS", 0.001)


async def test_what_a_dead_edge_had_reserved_becomes_what_the_ledger_says() -> None:
    """Two requests, of 30 tokens and 210 picos each: one has a row, the other was never begun."""
    scene = Scene()
    dead, alive = await scene.edge("edge-1"), await scene.edge("edge-2")
    await scene.say("edge-1")
    await reserve(dead, 1)
    await reserve(dead, 2)
    scene.books.rows_of[run(1)] = [row(run(1), completion=4), row(run(1), completion=1, attempt=2)]
    async with scene.looking(alive):
        state = scene.state()
        assert (state.seats, state.tokens, state.held_picos, state.spent_picos) == (2, 60, 420, 0)
        await scene.say("edge-1", "gone")
        await eventually(lambda: "edge-1" not in scene.state().slots)
        await eventually(lambda: alive.num_lost_runs == 2)
    state = scene.state()
    assert (state.seats, state.tokens, state.held_picos) == (0, 25, 0)
    assert state.spent_picos == 50 + 20


async def test_several_edges_settle_it_once() -> None:
    scene = Scene()
    dead = await scene.edge("edge-0")
    alive = [await scene.edge(f"edge-{number}") for number in range(1, 5)]
    await scene.say("edge-0")
    await reserve(dead, 1)
    await reserve(dead, 2, SMALL)
    for number in (1, 2):
        scene.books.rows_of[run(number)] = [row(run(number))]
    async with scene.looking(*alive, watch="edge-0"):
        await scene.say("edge-0", "gone")
        await eventually(lambda: scene.books.num_asked >= 1)
        for party in (KEY, SMALL):
            await eventually(lambda party=party: "edge-0" not in scene.state(party).slots)
        await eventually(lambda: sum(edge.num_lost_runs for edge in alive) == 2)
    assert [scene.state(party).spent_picos for party in (KEY, SMALL)] == [60, 60]


async def test_while_the_books_are_away_the_budget_keeps_what_may_have_been_spent() -> None:
    scene = Scene()
    dead, alive = await scene.edge("edge-1"), await scene.edge("edge-2")
    await scene.say("edge-1")
    await reserve(dead, 1)
    scene.books.rows_of[run(1)] = [row(run(1))]
    scene.books.away = True
    async with scene.looking(alive):
        await scene.say("edge-1", "gone")
        await eventually(lambda: scene.books.num_asked >= 3)
        await reserve(alive, 2)  # by the way, a seat of the dead one is free
        assert (scene.state().seats, scene.state().held_picos) == (1, 420)
        scene.books.away = False
        await eventually(lambda: "edge-1" not in scene.state().slots)
    assert (scene.state().held_picos, scene.state().spent_picos) == (210, 60)


async def test_while_the_bus_is_away_it_waits(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    dead, alive = await scene.edge("edge-1"), await scene.edge("edge-2")
    await scene.say("edge-1")
    await reserve(dead, 1)
    scene.books.rows_of[run(1)] = [row(run(1))]
    async with scene.looking(alive):
        scene.bucket.away = True
        await scene.say("edge-1", "gone")
        await eventually(lambda: "can't be looked for now" in caplog.text)
        scene.bucket.away = False
        await eventually(lambda: "edge-1" not in scene.state().slots)
    assert scene.state().spent_picos == 60


async def test_an_edge_that_is_heard_again_keeps_its_own() -> None:
    scene = Scene()
    quiet, alive = await scene.edge("edge-1"), await scene.edge("edge-2")
    await scene.say("edge-1")
    grant = await reserve(quiet, 1)
    scene.books.rows_of[run(1)] = [row(run(1))]
    scene.books.away = True
    async with scene.looking(alive):
        await scene.say("edge-1", "gone")
        await eventually(lambda: scene.books.num_asked >= 1)
        await scene.say("edge-1")
        await eventually(lambda: alive.board.lives("edge-1"))
        scene.books.away = False
        await quiet.accounts.settle(KEY, grant, Use(15, 60))
    assert (scene.state().tokens, scene.state().spent_picos, scene.state().held_picos) == (15, 60, 0)


async def test_an_edge_that_was_settled_by_others_does_not_count_again() -> None:
    scene = Scene()
    cut_off, alive = await scene.edge("edge-1"), await scene.edge("edge-2")
    await scene.say("edge-1")
    grant = await reserve(cut_off, 1)
    scene.books.rows_of[run(1)] = [row(run(1))]
    async with scene.looking(alive):
        await scene.say("edge-1", "gone")
        await eventually(lambda: "edge-1" not in scene.state().slots)
    second = await reserve(cut_off, 2)
    assert scene.state().seats == 2
    await cut_off.accounts.settle(KEY, grant, Use(15, 60))
    await cut_off.accounts.settle(KEY, second, Use(12, 30))
    state = scene.state()
    assert (state.seats, state.tokens, state.held_picos, state.spent_picos) == (0, 27, 0, 90)


async def test_a_model_pays_for_its_own_answers_and_an_alias_for_those_of_its_models() -> None:
    scene = Scene()
    dead, alive = await scene.edge("edge-1"), await scene.edge("edge-2")
    await scene.say("edge-1")
    for party in (SMALL, AUTO, KEY):
        await reserve(dead, 1, party)
    scene.books.rows_of[run(1)] = [row(run(1), model="large")]
    async with scene.looking(alive):
        await scene.say("edge-1", "gone")
        for party in (SMALL, AUTO, KEY):
            await eventually(lambda party=party: "edge-1" not in scene.state(party).slots)
    assert [scene.state(party).spent_picos for party in (SMALL, AUTO, KEY)] == [0, 60, 60]
    assert [scene.state(party).tokens for party in (SMALL, AUTO, KEY)] == [0, 15, 15]


async def test_what_was_spent_yesterday_is_not_on_todays_budget() -> None:
    scene = Scene()
    dead, alive = await scene.edge("edge-1"), await scene.edge("edge-2")
    await scene.say("edge-1")
    await reserve(dead, 1)
    await reserve(dead, 2)
    scene.books.rows_of[run(1)] = [row(run(1), ended_at=DAY_BEGAN - 1)]
    scene.books.rows_of[run(2)] = [row(run(2), ended_at=DAY_BEGAN)]
    async with scene.looking(alive):
        await scene.say("edge-1", "gone")
        await eventually(lambda: "edge-1" not in scene.state().slots)
    assert scene.state().spent_picos == 60


async def test_an_edge_that_starts_settles_what_was_left_before() -> None:
    """All were dead: the new one has heard of none, and gives them the time of a lease."""
    scene = Scene()
    await reserve(await scene.edge("edge-1"), 1)
    scene.books.rows_of[run(1)] = [row(run(1))]
    alive = await scene.edge("edge-2")
    async with scene.looking(alive):
        scene.clock.move(3.1)
        alive.board.check()
        await eventually(lambda: "edge-1" not in scene.state().slots)
    assert (scene.state().spent_picos, scene.state().tokens) == (60, 15)


async def test_the_alert_of_a_budget_is_given_by_who_settles(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    dead, alive = await scene.edge("edge-1"), await scene.edge("edge-2")
    await scene.say("edge-1")
    await reserve(dead, 1, output=900)
    scene.books.rows_of[run(1)] = [row(run(1), completion=800)]
    async with scene.looking(alive):
        await scene.say("edge-1", "gone")
        await eventually(lambda: "edge-1" not in scene.state().slots)
        await eventually(lambda: "budget of key.k1: 80% is spent" in caplog.text)


async def _settled(scene: Scene, dead: str = "edge-1") -> None:
    await scene.say(dead, "gone")
    await eventually(lambda: dead not in scene.state().slots)


async def test_a_row_that_comes_late_is_added_when_it_comes() -> None:
    """Bus and gateway were away: the first look finds an attempt that was migrated, and its end later."""
    scene = Scene()
    dead, alive = await scene.edge("edge-1"), await scene.edge("edge-2")
    await scene.say("edge-1")
    await reserve(dead, 1)
    await reserve(dead, 2)
    scene.books.rows_of[run(1)] = [row(run(1), completion=4, outcome="migrated")]
    async with scene.looking(alive):
        await _settled(scene)
        state = scene.state()
        assert (state.held_picos, state.spent_picos) == (0, 50)
        assert {name: late.picos for name, late in state.late.items()} == {run(1).name: 50, run(2).name: 0}
        scene.now += 120
        scene.books.rows_of[run(1)].append(row(run(1), completion=2, attempt=2))
        await eventually(lambda: scene.state().spent_picos == 80)
        scene.books.rows_of[run(2)] = [row(run(2), completion=9, outcome="finished")]
        await eventually(lambda: scene.state().spent_picos == 180)
        await eventually(lambda: not scene.state().late)


async def test_a_stand_in_that_is_replaced_is_counted_as_what_took_its_place() -> None:
    scene = Scene()
    dead, alive = await scene.edge("edge-1"), await scene.edge("edge-2")
    await scene.say("edge-1")
    await reserve(dead, 1)
    scene.books.rows_of[run(1)] = [row(run(1), completion=9, stand_in=True)]
    async with scene.looking(alive):
        await _settled(scene)
        assert scene.state().spent_picos == 100
        scene.books.rows_of[run(1)] = [row(run(1), completion=7)]
        await eventually(lambda: not scene.state().late)
    assert scene.state().spent_picos == 80


async def test_several_edges_add_a_late_row_once() -> None:
    scene = Scene()
    dead = await scene.edge("edge-0")
    alive = [await scene.edge(f"edge-{number}") for number in range(1, 5)]
    await scene.say("edge-0")
    await reserve(dead, 1)
    async with scene.looking(*alive, watch="edge-0"):
        await _settled(scene, "edge-0")
        assert scene.state().spent_picos == 0
        scene.books.rows_of[run(1)] = [row(run(1))]
        await eventually(lambda: not scene.state().late)
        asked = scene.books.num_asked
        await reserve(alive[0], 2)
    assert scene.state().spent_picos == 60
    assert asked >= 2


async def test_what_an_edge_settles_without_having_heard_the_end_becomes_what_the_ledger_says() -> None:
    """One answer of which a part was heard, one that was lost before it began, one that was heard out."""
    scene = Scene()
    alive = await scene.edge("edge-2")
    await scene.say("edge-1")
    async with scene.looking(alive):
        await alive.accounts.settle(KEY, await reserve(alive, 1), Use(12, 30, is_all=False))
        await alive.accounts.release(KEY, await reserve(alive, 2), may_cost=True)
        await alive.accounts.settle(KEY, await reserve(alive, 3), Use(15, 60))
        state = scene.state()
        assert (state.tokens, state.held_picos, state.spent_picos) == (12 + 15, 0, 30 + 60)
        assert {name: late.picos for name, late in state.late.items()} == {run(1).name: 30, run(2).name: 0}
        num_asked = scene.books.num_asked
        await eventually(lambda: scene.books.num_asked > num_asked + 2)
        assert scene.state().spent_picos == 30 + 60, "what was heard stays spent while the ledger has no row"
        scene.books.rows_of[run(1)] = [row(run(1), completion=9)]
        await eventually(lambda: scene.state().spent_picos == 100 + 60)
        scene.books.rows_of[run(2)] = [row(run(2), completion=1)]
        await eventually(lambda: not scene.state().late)
    assert scene.state().spent_picos == 100 + 20 + 60


async def test_a_row_is_looked_for_though_the_bus_was_away_when_its_run_was_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("baton_edge_api.limits.lane.RETRY_SECONDS", 0.01)
    scene = Scene()
    alive = await scene.edge("edge-2")
    grant = await reserve(alive, 1)
    scene.bucket.away = True
    settled = alive.accounts.settle(KEY, grant, Use(12, 30, is_all=False))
    assert not alive.accounts.take_expecting()[KEY].late, "not written yet"
    scene.bucket.away = False
    await settled
    assert alive.accounts.take_expecting()[KEY].late.keys() == {run(1).name}
    assert not alive.accounts.expects_rows


async def test_of_how_many_runs_rows_are_expected_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baton_edge_api.limits.tally.MOST_LATE", 2)
    scene = Scene()
    alive = await scene.edge("edge-2")
    for number in (1, 2, 3):
        await alive.accounts.release(KEY, await reserve(alive, number), may_cost=True)
    assert scene.state().late.keys() == {run(1).name, run(2).name}


async def test_after_five_minutes_no_row_is_waited_for() -> None:
    scene = Scene()
    dead, alive = await scene.edge("edge-1"), await scene.edge("edge-2")
    await scene.say("edge-1")
    await reserve(dead, 1)
    async with scene.looking(alive):
        await _settled(scene)
        scene.now += LATE_SECONDS - 1
        asked = scene.books.num_asked
        await eventually(lambda: scene.books.num_asked > asked + 2)
        assert scene.state().late
        scene.now += 1
        await eventually(lambda: not scene.state().late)


async def test_a_late_row_of_yesterday_is_not_on_todays_budget() -> None:
    """Neither what was counted of it yesterday is taken off today, nor what comes of it added."""
    scene = Scene()
    scene.now = DAY_BEGAN - 20
    dead, alive = await scene.edge("edge-1"), await scene.edge("edge-2")
    await scene.say("edge-1")
    await reserve(dead, 1)
    early = row(run(1), completion=1, outcome="migrated", ended_at=DAY_BEGAN - 30)
    scene.books.rows_of[run(1)] = [early]
    async with scene.looking(alive):
        await _settled(scene)
        assert scene.state().spent_picos == 20
        scene.now = DAY_BEGAN + 20
        scene.books.rows_of[run(1)] = [early, row(run(1), completion=2, attempt=2, ended_at=DAY_BEGAN + 1)]
        await eventually(lambda: not scene.state().late)
    assert scene.state().spent_picos == 30


async def test_without_a_budget_no_row_is_waited_for() -> None:
    scene = Scene()
    scene.rules.replace({f"rule.{SMALL}": LimitRule(tokens_per_minute=1000).encode()})
    dead, alive = await scene.edge("edge-1"), await scene.edge("edge-2")
    await scene.say("edge-1")
    await reserve(dead, 1, SMALL)
    async with scene.looking(alive):
        await scene.say("edge-1", "gone")
        await eventually(lambda: "edge-1" not in scene.state(SMALL).slots)
    assert not scene.state(SMALL).late


async def test_an_edge_that_used_the_account_before_the_dead_one_did_settles_it_too() -> None:
    """What it last saw of the account knows nothing of the dead edge, and no request makes it look."""
    scene = Scene()
    dead, alive = await scene.edge("edge-1"), await scene.edge("edge-2")
    await scene.say("edge-1")
    await alive.accounts.settle(KEY, await reserve(alive, 1), Use(15, 60))
    await reserve(dead, 2)
    scene.books.rows_of[run(2)] = [row(run(2))]
    async with scene.looking(alive):
        await _settled(scene)
    assert (scene.state().held_picos, scene.state().spent_picos) == (0, 60 + 60)
