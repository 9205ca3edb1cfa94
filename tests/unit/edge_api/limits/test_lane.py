"""One account at one edge: joined writes, lost races, lost answers, a bus that is away."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Set
from dataclasses import dataclass, field

import pytest

from baton_common.errors import BusError
from baton_contracts.limits import Budget, LimitRule
from baton_edge_api.limits import lane as lane_module
from baton_edge_api.limits.account import Account
from baton_edge_api.limits.changes import Change, Outcome
from baton_edge_api.limits.holds import Hold, Use
from baton_edge_api.limits.known_account import KnownAccount
from baton_edge_api.limits.lane import Lane
from baton_edge_api.limits.standing import Refusal
from baton_edge_api.limits.wish import Wish
from tests.support.memory_bucket import MemoryBucket

T0 = 1_796_000_000.0
PARTY = "key.k1"


@dataclass
class Edge:
    lane: Lane
    numbers: list[int] = field(default_factory=lambda: [0])

    def reserve(self, wish: Wish) -> tuple[int, asyncio.Future[Outcome]]:
        self.numbers.append(self.numbers[-1] + 1)
        grant = self.numbers[-1]
        return grant, self.lane.submit(Change(grant, lambda account, _: account.reserve(wish), takes=True))

    def settle(self, grant: int, use: Use, *, can_wait: bool = False) -> asyncio.Future[Outcome]:
        def settle(account: Account, hold: Hold) -> None:
            account.settle(hold, use)

        return self.lane.submit(Change(grant, settle, takes=False), can_wait=can_wait)

    def free_seat(self, grant: int) -> asyncio.Future[Outcome]:
        change = Change(grant, lambda account, hold: account.free_seat(hold), takes=False)
        return self.lane.submit(change)


def edge(bucket: MemoryBucket, rule: LimitRule, name: str = "edge-1", gone: Set[str] = frozenset()) -> Edge:
    def among(edges: Iterable[str]) -> Set[str]:
        return gone & set(edges)

    seqs = itertools.count(1)
    account = KnownAccount(
        PARTY, bucket, edge=name, rule=lambda: rule, wall=lambda: T0, gone=among, seqs=seqs
    )
    return Edge(Lane(account, name))


async def test_what_comes_together_is_one_write() -> None:
    bucket = MemoryBucket()
    one = edge(bucket, LimitRule(requests_per_minute=60))
    outcomes = await asyncio.gather(*(one.reserve(Wish(0, 0))[1] for _ in range(100)))
    assert sum(isinstance(outcome.result, Hold) for outcome in outcomes) == 60
    assert bucket.state(PARTY).requests == 60
    assert (bucket.num_reads, bucket.num_writes) == (1, 1)
    assert [outcome.view.remaining_requests for outcome in outcomes[:3]] == [59, 58, 57]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What can wait waits until something makes it go."""
    monkeypatch.setattr(lane_module, "PATIENCE_SECONDS", 3600.0)


@pytest.mark.usefixtures("patient")
async def test_what_can_wait_shares_the_write_of_the_next_request() -> None:
    bucket = MemoryBucket()
    one = edge(bucket, LimitRule(tokens_per_minute=1000))
    grant, done = one.reserve(Wish(10, 90))
    await done
    settled = one.settle(grant, Use(tokens=15), can_wait=True)
    assert (bucket.state(PARTY).tokens, bucket.num_writes) == (100, 1)
    _, again = one.reserve(Wish(10, 20))
    view = (await again).view
    assert settled.done()
    assert (bucket.state(PARTY).tokens, view.remaining_tokens, bucket.num_writes) == (45, 955, 2)


@pytest.mark.usefixtures("patient")
async def test_what_can_wait_is_written_before_the_edge_leaves() -> None:
    bucket = MemoryBucket()
    one = edge(bucket, LimitRule(tokens_per_minute=1000))
    grant, done = one.reserve(Wish(10, 90))
    await done
    one.settle(grant, Use(tokens=15), can_wait=True)
    async with asyncio.timeout(20):
        await one.lane.settled()
    assert (bucket.state(PARTY).tokens, one.lane.is_idle) == (15, True)


async def test_what_can_wait_goes_by_itself_where_no_request_comes() -> None:
    bucket = MemoryBucket()
    one = edge(bucket, LimitRule(tokens_per_minute=1000))
    grant, done = one.reserve(Wish(10, 90))
    await done
    async with asyncio.timeout(20):
        await one.settle(grant, Use(tokens=15), can_wait=True)
    assert bucket.state(PARTY).tokens == 15


async def test_an_account_has_room_while_not_a_quarter_of_it_is_taken() -> None:
    bucket = MemoryBucket()
    one = edge(bucket, LimitRule(concurrent=8))
    assert not one.lane.has_room, "nothing is known of it yet"
    rooms: list[bool] = []
    for _ in range(3):
        await one.reserve(Wish(0, 0))[1]
        rooms.append(one.lane.has_room)
    assert rooms == [True, True, False]


async def test_a_refusal_looks_again_before_it_says_no() -> None:
    """Another edge may have given back what ours remembers as taken."""
    bucket = MemoryBucket()
    rule = LimitRule(concurrent=1)
    one, two = edge(bucket, rule), edge(bucket, rule, "edge-2")
    grant, done = one.reserve(Wish(0, 0))
    await done
    assert isinstance((await two.reserve(Wish(0, 0))[1]).result, Refusal)
    await one.settle(grant, Use())
    assert isinstance((await two.reserve(Wish(0, 0))[1]).result, Hold)


async def test_two_edges_share_one_limit_to_the_last_request() -> None:
    bucket = MemoryBucket()
    rule = LimitRule(requests_per_minute=50, tokens_per_minute=1000)
    edges = [edge(bucket, rule, f"edge-{number}") for number in range(3)]
    waits = [each.reserve(Wish(10, 20))[1] for each in edges for _ in range(40)]
    outcomes = await asyncio.gather(*waits)
    assert sum(isinstance(outcome.result, Hold) for outcome in outcomes) == 33
    assert (bucket.state(PARTY).requests, bucket.state(PARTY).tokens) == (33, 990)


async def test_a_write_whose_answer_was_lost_is_not_done_twice() -> None:
    bucket = MemoryBucket()
    rule = LimitRule(tokens_per_minute=1000, budget=Budget(picos=1000, period="total"), concurrent=3)
    one = edge(bucket, rule)
    grant, done = one.reserve(Wish(10, 20))
    await done
    bucket.lose_answer = True
    await one.settle(grant, Use(tokens=12, picos=7))
    state = bucket.state(PARTY)
    assert (state.tokens, state.spent_picos, state.seats) == (12, 7, 0)
    await one.lane.settled()
    assert one.lane.is_idle


async def test_an_admission_whose_answer_was_lost_leaves_no_seat_behind() -> None:
    bucket = MemoryBucket()
    one = edge(bucket, LimitRule(concurrent=1))
    bucket.lose_answer = True
    with pytest.raises(BusError):
        await one.reserve(Wish(0, 0))[1]
    assert bucket.state(PARTY).seats == 1
    assert isinstance((await one.reserve(Wish(0, 0))[1]).result, Hold)
    assert bucket.state(PARTY).seats == 1


async def test_without_the_bus_taking_fails_and_giving_back_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_module, "RETRY_SECONDS", 0.001)
    bucket = MemoryBucket()
    one = edge(bucket, LimitRule(concurrent=2, requests_per_minute=9))
    grant, done = one.reserve(Wish(0, 0))
    await done
    bucket.away = True
    settled = one.settle(grant, Use())
    with pytest.raises(BusError):
        await one.reserve(Wish(0, 0))[1]
    assert not settled.done()
    bucket.away = False
    await settled
    assert bucket.state(PARTY).seats == 0


async def test_a_seat_that_changes_hands_in_one_turn_is_no_write_at_all() -> None:
    bucket = MemoryBucket()
    one = edge(bucket, LimitRule(concurrent=1))
    grant, done = one.reserve(Wish(0, 0))
    await done
    one.settle(grant, Use())
    assert isinstance((await one.reserve(Wish(0, 0))[1]).result, Hold)
    assert bucket.num_writes == 1


async def test_the_seat_of_a_client_that_left_is_free_before_its_use_is_known() -> None:
    bucket = MemoryBucket()
    one = edge(bucket, LimitRule(concurrent=1, tokens_per_minute=100))
    grant, done = one.reserve(Wish(10, 20))
    await done
    one.free_seat(grant)
    _, again = one.reserve(Wish(10, 20))
    assert isinstance((await again).result, Hold)
    await one.settle(grant, Use(tokens=15))
    assert (bucket.state(PARTY).seats, bucket.state(PARTY).tokens) == (1, 45)


async def test_a_dead_edges_seats_are_free_and_its_tokens_stay_used() -> None:
    bucket = MemoryBucket()
    rule = LimitRule(concurrent=1, tokens_per_minute=100)
    await edge(bucket, rule, "edge-dead").reserve(Wish(10, 20))[1]
    assert isinstance((await edge(bucket, rule).reserve(Wish(1, 1))[1]).result, Refusal)
    survivor = edge(bucket, rule, gone={"edge-dead"})
    assert isinstance((await survivor.reserve(Wish(1, 1))[1]).result, Hold)
    state = bucket.state(PARTY)
    assert (list(state.slots), state.seats, state.tokens) == (["edge-1"], 1, 32)


async def test_an_edge_that_was_taken_for_dead_mends_its_slot() -> None:
    bucket = MemoryBucket()
    rule = LimitRule(concurrent=5)
    cut_off = edge(bucket, rule, "edge-2")
    first, done = cut_off.reserve(Wish(0, 0))
    await done
    await edge(bucket, rule, gone={"edge-2"}).reserve(Wish(0, 0))[1]
    assert bucket.state(PARTY).seats == 1
    second, done = cut_off.reserve(Wish(0, 0))
    await done
    assert bucket.state(PARTY).seats == 3
    await asyncio.gather(cut_off.settle(first, Use()), cut_off.settle(second, Use()))
    assert bucket.state(PARTY).seats == 1


async def test_a_damaged_entry_locks_nobody_out(caplog: pytest.LogCaptureFixture) -> None:
    bucket = MemoryBucket({"use.key.k1": (b"{nonsense", 4)})
    outcome = await edge(bucket, LimitRule(requests_per_minute=1)).reserve(Wish(0, 0))[1]
    assert isinstance(outcome.result, Hold)
    assert "begins anew" in caplog.text


async def test_an_admission_whose_answer_was_lost_counts_no_request() -> None:
    bucket = MemoryBucket()
    one = edge(bucket, LimitRule(requests_per_minute=2, tokens_per_minute=100))
    bucket.lose_answer = True
    with pytest.raises(BusError):
        await one.reserve(Wish(10, 20))[1]
    assert (bucket.state(PARTY).requests, bucket.state(PARTY).tokens) == (1, 30)
    assert isinstance((await one.reserve(Wish(1, 1))[1]).result, Hold)
    assert (bucket.state(PARTY).requests, bucket.state(PARTY).tokens) == (1, 2)
    assert one.lane.num_held == 1
