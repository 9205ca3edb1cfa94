"""Three edges, one account, and everything that can happen: in the end it says what the ledger says.

Edges reserve, settle, release, leave, are killed between any two awaits, and are taken for dead while they
live; writes are lost, overtaken, or carried out without an answer; limits change, keys are rotated, clocks
jump, windows and days turn. The ledger is the truth: rows of the requests that ran, whatever their edge still
knew.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Set
from dataclasses import dataclass, field, replace

import pytest

from baton_common.errors import BusError
from baton_common.money import Price
from baton_contracts.keys import KeyEntry, key_hash
from baton_contracts.limits import AccountState, Budget, LimitRule, Slot
from baton_edge_api.keys import KeyRing
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
BUDGET = Budget(picos=30_000, period="day")
RULES = (
    LimitRule(requests_per_minute=400, tokens_per_minute=9000, concurrent=9),
    LimitRule(requests_per_minute=9, tokens_per_minute=300, concurrent=400),
    LimitRule(tokens_per_minute=9000),
    LimitRule(concurrent=320, requests_per_minute=1000),
)
"""That of a key at first, and those that it may be given instead."""
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
    budget: Budget | None = BUDGET
    ledger: dict[str, Use] = field(default_factory=dict[str, Use])
    """Money: of this day only."""
    holds: dict[str, Hold] = field(default_factory=dict[str, Hold])
    """As they were given, of those that came in."""
    num_begun: int = 0
    num_lost: int = 0
    now: float = T0
    ring: KeyRing = field(default_factory=lambda: KeyRing(""))
    num_keys: int = 0

    def __post_init__(self) -> None:
        self.put_key(RULES[0])

    def put_key(self, rule: LimitRule) -> None:
        """Its limits are changed."""
        limits = rule.model_copy(update={"budget": self.budget})
        entry = KeyEntry(key_id="k1", tenant_id="t", limits=limits)
        self.ring.put(key_hash(f"secret-{self.num_keys}"), entry.encode())

    def rotate_key(self) -> None:
        """A new one, and soon without the old one."""
        old = key_hash(f"secret-{self.num_keys}")
        limits = self.ring.rule_of("k1")
        assert limits
        self.num_keys += 1
        self.put_key(limits)
        self.ring.remove(old)

    def edge(self, name: str) -> Edge:
        link = Link(self.bucket, self.dice)
        rules = RuleBook(self.ring.rule_of)
        accounts = Accounts(rules, link, self.gone, edge=name, wall=lambda: self.now)  # type: ignore[arg-type]
        return Edge(self, name, accounts)

    async def come_to_rest(self, edges: list[Edge]) -> None:
        for edge in edges:
            await edge.finish()
        for name in self.gone & self.state.slots.keys():
            await self.settle_lost(name, edges)

    def tell(self) -> None:
        """The account is as the ledger: of the window that is open, and of this day."""
        state = self.state
        opened = {run: hold for run, hold in self.holds.items() if hold.window_start == state.window_start}
        tokens = sum(self.ledger[run].tokens for run, hold in opened.items() if hold.tokens is not None)
        if self.budget:
            assert state.spent_picos == sum(use.picos for use in self.ledger.values())
        if self.budget or not self.num_lost:
            assert state.tokens == tokens
        else:  # what is set aside by an edge that is lost stays used
            assert state.tokens >= tokens
        assert sum(hold.requests for hold in opened.values()) <= state.requests
        assert (state.seats, state.held_picos) == (0, 0)
        assert not [name for name in state.slots if name in self.gone]

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
        hold = outcome.result
        if cut_off.is_set() or dice.random() < 0.2:  # refused further on
            await accounts.release(PARTY, grant)
            return
        answered = dice.randrange(output + 1)
        picos = PRICE.at_most(prompt, answered) if world.budget else 0
        use = world.ledger[run] = Use(prompt + answered, picos)
        world.holds[run] = hold
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


@pytest.mark.parametrize("budget", [BUDGET, None])
@pytest.mark.parametrize("seed", range(SEEDS))
async def test_whatever_happens_the_account_comes_to_what_the_ledger_says(
    seed: int, budget: Budget | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lane_module, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(lane_module, "PATIENCE_SECONDS", 0.001)
    world = World(random.Random(seed), budget=budget)  # noqa: S311  # the same in each run
    dice = world.dice
    edges = [world.edge(f"edge-{number}") for number in range(3)]
    num_edges = len(edges)
    edges_die = bool(budget or seed % 2)
    for _ in range(120):
        which = dice.randrange(3)
        what = dice.random()
        if what < 0.75:
            edges[which].begin()
        elif what < 0.79 and edges_die:
            dead = edges[which]
            dead.kill()
            world.num_lost += 1
            world.gone.add(dead.name)
            edges[which] = world.edge(f"edge-{num_edges}")
            num_edges += 1
            if dice.random() < 0.5:
                await world.settle_lost(dead.name, edges)
        elif what < 0.82 and edges_die:
            await _taken_for_dead(world, edges, which)
        elif what < 0.84:
            await _leave(world, edges[which])
            edges[which] = world.edge(f"edge-{num_edges}")
            num_edges += 1
        elif what < 0.88:
            _change_something(world)
        elif what < 0.885:
            await _turn_day(world, edges)
        else:
            await asyncio.sleep(0)
    await world.come_to_rest(edges)
    await world.settle_late(edges)
    world.tell()
    assert world.state.late == {}


def _change_something(world: World) -> None:
    what = world.dice.randrange(4)
    if what == 0:
        world.put_key(world.dice.choice(RULES))
    elif what == 1:
        world.rotate_key()
    elif what == 2:
        world.now += world.dice.uniform(-3, 3)  # a clock is put right
    else:
        world.now += 61


async def _leave(world: World, edge: Edge) -> None:
    """In order: what it held is given back before it goes."""
    await edge.finish()
    slot = world.state.slots.get(edge.name, Slot()) if world.bucket.values else Slot()
    assert (slot.seats, slot.held_picos, slot.runs) == (0, 0, {})
    world.gone.add(edge.name)


async def _turn_day(world: World, edges: list[Edge]) -> None:
    """Between requests; what comes late of the day before is not on this one's budget."""
    if not world.bucket.values:
        return
    await world.come_to_rest(edges)
    world.now += 86_400
    world.ledger = {run: replace(use, picos=0) for run, use in world.ledger.items()}


async def _taken_for_dead(world: World, edges: list[Edge], which: int) -> None:
    """Its lease is lost and nobody hears it; its requests are over. Then it is back, and goes on."""
    cut_off = edges[which]
    cut_off.cut_off.set()
    world.num_lost += 1
    others = [edge for edge in edges if edge is not cut_off]
    world.gone.add(cut_off.name)
    await world.settle_lost(cut_off.name, others)
    world.gone.discard(cut_off.name)
    cut_off.cut_off = asyncio.Event()
