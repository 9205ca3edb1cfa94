"""Requests that are let in from what was set aside for them: no write each, and no limit passed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Set
from dataclasses import dataclass, field

import pytest

from baton_common.errors import BusError
from baton_contracts.limits import Budget, LimitRule
from baton_edge_api.limits import lane as lane_module
from baton_edge_api.limits.account import Account
from baton_edge_api.limits.by_ledger import settle_lost
from baton_edge_api.limits.changes import Change, Outcome
from baton_edge_api.limits.holds import Hold, Use
from baton_edge_api.limits.known_account import KnownAccount
from baton_edge_api.limits.lane import Lane
from baton_edge_api.limits.standing import Refusal
from baton_edge_api.limits.wish import Wish
from tests.support.memory_bucket import MemoryBucket

PARTY = "key.k1"
RULE = LimitRule(requests_per_minute=1000, tokens_per_minute=100_000, concurrent=320)
WISH = Wish(10, 20)


@dataclass
class Edge:
    bucket: MemoryBucket
    name: str = "edge-1"
    rule: LimitRule = RULE
    gone: Set[str] = frozenset()
    now: float = 1_796_000_000.0
    grants: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        account = KnownAccount(
            PARTY,
            self.bucket,
            edge=self.name,
            rule=lambda: self.rule,
            wall=lambda: self.now,
            gone=lambda edges: self.gone & set(edges),
            seqs=itertools.count(1),
        )
        self.lane = Lane(account, self.name)

    async def take(self, wish: Wish = WISH) -> tuple[int, Outcome]:
        """As Accounts.reserve."""
        grant = next(self.grants)
        if outcome := self.lane.let_in(grant, wish, f"run-{grant}"):
            return grant, outcome
        change = Change(grant, lambda account, _: account.reserve(wish, f"run-{grant}"), takes=True)
        return grant, await self.lane.submit(change)

    async def take_many(self, count: int) -> list[int]:
        return [(await self.take())[0] for _ in range(count)]

    def settle(self, grant: int, use: Use) -> asyncio.Future[Outcome]:
        def settle(account: Account, hold: Hold) -> None:
            account.settle(hold, use)

        return self.lane.submit(Change(grant, settle, takes=False), can_wait=self.lane.has_room)

    def settle_lost(self, edge: str, use: Use) -> asyncio.Future[Outcome]:
        """Each run in its slot came to `use`."""
        slot = self.bucket.state(PARTY).slots[edge]

        def settle(account: Account, _: Hold) -> None:
            settle_lost(account, edge, slot.seq, dict.fromkeys(slot.runs, use))

        return self.lane.submit(Change(next(self.grants), settle, takes=False))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing goes by itself."""
    monkeypatch.setattr(lane_module, "PATIENCE_SECONDS", 3600.0)


@pytest.mark.usefixtures("patient")
async def test_who_asks_often_is_let_in_without_a_write() -> None:
    edge = Edge(MemoryBucket())
    await edge.take_many(3)  # two are demand: with the third, twice as many are set aside
    assert edge.bucket.num_writes == 3
    views = [view_of(await edge.take()) for _ in range(4)]
    assert views == [(996, 99_880), (995, 99_850), (994, 99_820), (993, 99_790)]
    assert edge.bucket.num_writes == 3
    stored = edge.bucket.state(PARTY)
    assert (stored.requests, stored.tokens, stored.seats) == (7, 210, 7), "counts as used for the others"


def view_of(taken: tuple[int, Outcome]) -> tuple[int, int]:
    """What the client is told counts nothing that nobody asked for."""
    view = taken[1].view
    return view.remaining_requests, view.remaining_tokens


@pytest.mark.usefixtures("patient")
async def test_where_tokens_alone_are_limited_they_bound_what_is_set_aside() -> None:
    edge = Edge(MemoryBucket(), rule=LimitRule(tokens_per_minute=1600))
    await edge.take_many(6)  # with the third a sixteenth, 100 tokens, is set aside: enough for three
    assert (edge.bucket.num_writes, edge.bucket.state(PARTY).tokens) == (3, 3 * 30 + 100)
    await edge.take()
    assert edge.bucket.num_writes == 4


@pytest.mark.usefixtures("patient")
async def test_one_request_alone_sets_nothing_aside() -> None:
    edge = Edge(MemoryBucket())
    await edge.take()
    stored = edge.bucket.state(PARTY)
    assert (stored.requests, stored.tokens, stored.seats) == (1, 30, 1)


async def test_what_nobody_asks_for_goes_back_and_the_names_are_put_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lane_module, "PATIENCE_SECONDS", 0.01)
    edge = Edge(MemoryBucket())
    grants = await edge.take_many(5)
    async with asyncio.timeout(20):
        await edge.lane.settled()
    stored = edge.bucket.state(PARTY)
    assert (stored.requests, stored.tokens, stored.seats) == (5, 150, 5)
    assert stored.slots["edge-1"].runs == {f"run-{grant}": 30 for grant in grants}
    await asyncio.gather(*(edge.settle(grant, Use(tokens=12)) for grant in grants))
    stored = edge.bucket.state(PARTY)
    assert (stored.requests, stored.tokens, stored.seats) == (5, 60, 0)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    "rule",
    [
        LimitRule(requests_per_minute=1000, budget=Budget(picos=10**12, period="day")),
        LimitRule(requests_per_minute=15),
        LimitRule(concurrent=15),
        LimitRule(tokens_per_minute=160),
    ],
)
async def test_where_money_or_little_is_limited_each_request_has_its_own_write(rule: LimitRule) -> None:
    edge = Edge(MemoryBucket(), rule=rule)
    await edge.take_many(4)
    assert edge.bucket.num_writes == 4


@pytest.mark.usefixtures("patient")
async def test_what_is_set_aside_is_for_the_rule_and_the_window_it_was_made_in() -> None:
    edge = Edge(MemoryBucket())
    await edge.take_many(3)
    edge.rule = LimitRule(requests_per_minute=3)
    assert isinstance((await edge.take())[1].result, Refusal)
    other = Edge(MemoryBucket())
    await other.take_many(3)
    other.now += 60.0
    _, outcome = await other.take()
    assert outcome.view.remaining_requests == 999
    assert other.bucket.state(PARTY).requests == 1 + 6


@pytest.mark.usefixtures("patient")
async def test_a_request_larger_than_what_is_left_has_a_write_of_its_own() -> None:
    edge = Edge(MemoryBucket())
    await edge.take_many(3)
    await edge.take(Wish(10, 500))
    assert edge.bucket.num_writes == 4
    assert edge.bucket.state(PARTY).tokens == 3 * 30 + 510 + 2 * (3 * 30)


@pytest.mark.usefixtures("patient")
async def test_what_a_lost_edge_had_set_aside_stays_used_and_its_seats_are_free() -> None:
    bucket = MemoryBucket()
    await Edge(bucket, "edge-dead").take_many(4)
    await Edge(bucket, gone={"edge-dead"}).take()
    stored = bucket.state(PARTY)
    assert (stored.requests, stored.tokens, stored.seats) == (3 + 4 + 1, 90 + 120 + 30, 1)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("is_settled", "tokens"), [(False, 0), (True, 3 * 12 + 120)])
async def test_an_edge_that_was_taken_for_dead_gives_back_nothing_twice(
    *, is_settled: bool, tokens: int
) -> None:
    """Of its four requests three are named in its slot; the fourth is a part of the 120 set aside."""
    bucket = MemoryBucket()
    cut_off, other = Edge(bucket, "edge-2"), Edge(bucket, gone={"edge-2"})
    grants = await cut_off.take_many(4)
    await other.take()
    if is_settled:
        await other.settle_lost("edge-2", Use(tokens=12))
    await cut_off.take(Wish(0, 1000))  # a write: it finds its slot as the other left it
    await asyncio.gather(*(cut_off.settle(grant, Use()) for grant in grants), cut_off.lane.settled())
    assert bucket.state(PARTY).tokens == tokens + 30 + 1000
    assert bucket.state(PARTY).seats == 2


@pytest.mark.usefixtures("patient")
async def test_a_write_whose_answer_was_lost_sets_nothing_aside_twice() -> None:
    edge = Edge(MemoryBucket())
    await edge.take_many(2)
    edge.bucket.lose_answer = True
    with pytest.raises(BusError):
        await edge.take()  # what it took goes back with the next write
    await edge.take()
    assert edge.bucket.state(PARTY).requests == 3 + 4
    assert view_of(await edge.take()) == (1000 - 4, 100_000 - 4 * 30)


async def test_edges_that_set_aside_never_let_in_more_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_module, "PATIENCE_SECONDS", 0.005)
    rule = LimitRule(requests_per_minute=200)
    bucket = MemoryBucket()
    edges = [Edge(bucket, f"edge-{number}", rule) for number in range(3)]

    async def ask_on(edge: Edge) -> int:
        let_in = 0
        for _ in range(150):
            let_in += isinstance((await edge.take())[1].result, Hold)
            edge.now += 0.0005
        return let_in

    async with asyncio.timeout(20):
        let_in = sum(await asyncio.gather(*map(ask_on, edges)))
    assert let_in == 200
    assert bucket.state(PARTY).requests == 200
