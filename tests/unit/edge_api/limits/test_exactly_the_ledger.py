"""Three edges, one account, and everything that can happen: in the end it says what the ledger says.

Edges reserve, settle, release, are killed between any two awaits, and are taken for dead while they live;
writes are lost, overtaken, or carried out without an answer. The ledger is the truth: rows of the requests
that ran, whatever their edge still knew of it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Set
from dataclasses import dataclass, field, replace

import pytest

from baton_common.errors import BusError
from baton_common.money import Price
from baton_contracts.limits import AccountState, Budget, LimitRule
from baton_edge_api.limits import lane as lane_module
from baton_edge_api.limits.accounts import Accounts
from baton_edge_api.limits.holds import Hold, Use
from baton_edge_api.limits.rules import RuleBook
from baton_edge_api.limits.wish import Wish
from tests.support.memory_bucket import MemoryBucket

T0 = 1_796_000_000.0
PARTY = "key.k1"
PRICE = Price(2, 2, 3)
NEVER = Use()
RULE = LimitRule(
    requests_per_minute=400, tokens_per_minute=9000, concurrent=9, budget=Budget(picos=30_000, period="total")
)
SEEDS = 60


class Gone(set[str]):
    def among(self, edges: Iterable[str]) -> Set[str]:
        return self & set(edges)


@dataclass
class Link:
    """One edge's way to the bucket: each call may be slow, and its answer may be lost."""

    bucket: MemoryBucket
    dice: random.Random

    async def _pass(self) -> None:
        for _ in range(self.dice.randrange(4)):
            await asyncio.sleep(0)

    async def read(self, entry: str) -> tuple[bytes, int]:
        await self._pass()
        found = await self.bucket.read(entry)
        await self._pass()
        return found

    async def replace(self, entry: str, value: bytes, revision: int) -> int:
        await self._pass()
        if self.dice.random() < 0.03:
            raise BusError(entry, "not sent")
        written = await self.bucket.replace(entry, value, revision)
        await self._pass()
        if self.dice.random() < 0.05:
            raise BusError(entry, "carried out, and the answer was lost")
        return written


@dataclass(repr=False)
class World:
    dice: random.Random
    bucket: MemoryBucket = field(default_factory=MemoryBucket)
    gone: Gone = field(default_factory=Gone)
    ledger: dict[str, Use] = field(default_factory=dict[str, Use])
    num_begun: int = 0

    def edge(self, name: str) -> Edge:
        link = Link(self.bucket, self.dice)
        rules = RuleBook(lambda _: RULE)
        accounts = Accounts(rules, link, self.gone, edge=name, wall=lambda: T0)  # type: ignore[arg-type]
        return Edge(self, name, accounts)

    @property
    def state(self) -> AccountState:
        return self.bucket.state(PARTY)

    async def settle_lost(self, name: str, by: list[Edge]) -> None:
        """As `left_behind` does it, at all of these at once."""
        slot = self.state.slots.get(name) if self.bucket.values else None
        if slot:
            uses = {run: self._known(run) for run in slot.runs}
            await asyncio.gather(*(each.accounts.settle_lost(PARTY, name, slot.seq, uses) for each in by))

    def _known(self, run: str) -> Use:
        """Now and then not all of it yet."""
        use = self.ledger.get(run, NEVER)
        if self.dice.random() < 0.7:
            return use
        return replace(use, picos=self.dice.randrange(use.picos + 1), is_all=False)

    async def settle_late(self, by: list[Edge]) -> None:
        """As `left_behind` does it, at all of these at once; what they know of it differs."""
        for _ in range(60):
            if late := self.state.late:
                asked = [{run: (seen, self._known(run)) for run, seen in late.items()} for _ in by]
                pairs = zip(by, asked, strict=True)
                await asyncio.gather(*(each.accounts.settle_late(PARTY, uses) for each, uses in pairs))


@dataclass(repr=False)
class Edge:
    world: World
    name: str
    accounts: Accounts
    under_way: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    cut_off: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(self) -> None:
        task = asyncio.create_task(self._request())
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)

    async def _request(self) -> None:
        world, accounts, dice = self.world, self.accounts, self.world.dice
        world.num_begun += 1
        run, grant = f"t.{world.num_begun:032x}.00000000.1", accounts.new_grant()
        prompt, output = dice.randrange(1, 40), dice.randrange(1, 60)
        cut_off = self.cut_off
        try:
            outcome = await accounts.reserve(PARTY, grant, Wish(prompt, output, PRICE), run)
        except BusError:
            await accounts.release(PARTY, grant)
            return
        if not isinstance(outcome.result, Hold):
            return
        if cut_off.is_set() or dice.random() < 0.2:  # refused further on
            await accounts.release(PARTY, grant)
            return
        answered = dice.randrange(output + 1)
        use = world.ledger[run] = Use(prompt + answered, PRICE.at_most(prompt, answered))
        await self._answer(cut_off)
        if dice.random() < 0.3:
            accounts.free_seat(PARTY, grant)
            await asyncio.sleep(0)
        await accounts.settle(PARTY, grant, use, can_wait=accounts.has_room(PARTY))

    async def _answer(self, cut_off: asyncio.Event) -> None:
        """Of one that is cut off no request goes on: the engines stop them, and what was used is known."""
        for _ in range(self.world.dice.randrange(30)):
            if cut_off.is_set():
                return
            await asyncio.sleep(0)

    def kill(self) -> None:
        """At the awaits where they are: a write is carried out by then, or never."""
        lanes = [lane._running for lane in self.accounts._lanes.values()]  # pyright: ignore[reportPrivateUsage]
        for task in (*self.under_way, *lanes):
            if task:
                task.cancel()

    async def finish(self) -> None:
        while self.under_way:
            await asyncio.wait(set(self.under_way))
        assert await self.accounts.flush(5)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_whatever_happens_the_account_comes_to_what_the_ledger_says(
    seed: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lane_module, "RETRY_SECONDS", 0.0)
    world = World(random.Random(seed))  # noqa: S311  # the same in each run
    dice = world.dice
    edges = [world.edge(f"edge-{number}") for number in range(3)]
    num_edges = len(edges)
    for _ in range(120):
        which = dice.randrange(3)
        what = dice.random()
        if what < 0.75:
            edges[which].begin()
        elif what < 0.79:
            dead = edges[which]
            dead.kill()
            world.gone.add(dead.name)
            edges[which] = world.edge(f"edge-{num_edges}")
            num_edges += 1
            if dice.random() < 0.5:
                await world.settle_lost(dead.name, edges)
        elif what < 0.82:
            await _taken_for_dead(world, edges, which)
        else:
            await asyncio.sleep(0)
    for edge in edges:
        await edge.finish()
    for name in world.gone & world.state.slots.keys():
        await world.settle_lost(name, edges)
    await world.settle_late(edges)
    state = world.state
    assert state.spent_picos == sum(use.picos for use in world.ledger.values())
    assert state.tokens == sum(use.tokens for use in world.ledger.values())
    assert (state.seats, state.held_picos, state.late) == (0, 0, {})
    assert len(world.ledger) <= state.requests <= world.num_begun
    assert not [name for name in state.slots if name in world.gone]


async def _taken_for_dead(world: World, edges: list[Edge], which: int) -> None:
    """Its lease is lost and nobody hears it; its requests are over. Then it is back, and goes on."""
    cut_off = edges[which]
    cut_off.cut_off.set()
    others = [edge for edge in edges if edge is not cut_off]
    world.gone.add(cut_off.name)
    await world.settle_lost(cut_off.name, others)
    world.gone.discard(cut_off.name)
    cut_off.cut_off = asyncio.Event()
