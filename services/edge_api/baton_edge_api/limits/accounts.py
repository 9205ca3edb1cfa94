"""All accounts that requests at this edge touch: one lane each, made when it is first needed.

Owns the lanes and the numbers of grants. A party without a limit never gets here.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping

from baton_contracts.limits import AccountState, LateRun
from baton_edge_api.bucket import Bucket
from baton_edge_api.limits.account import Account
from baton_edge_api.limits.by_ledger import raise_spent, settle_late, settle_lost
from baton_edge_api.limits.changes import Change, Outcome
from baton_edge_api.limits.gone_edges import GoneEdges
from baton_edge_api.limits.holds import Hold, Use
from baton_edge_api.limits.known_account import KnownAccount
from baton_edge_api.limits.lane import Lane
from baton_edge_api.limits.rules import RuleBook
from baton_edge_api.limits.standing import View
from baton_edge_api.limits.wish import Wish

MAX_LANES = 4096
"""Beyond it the idle ones are forgotten: the next request reads their account anew."""


class Accounts:
    def __init__(
        self, rules: RuleBook, bucket: Bucket, gone: GoneEdges, *, edge: str, wall: Callable[[], float]
    ) -> None:
        self._rules = rules
        self._bucket = bucket
        self._gone = gone
        self._edge = edge
        self._wall = wall
        self._lanes: dict[str, Lane] = {}
        self._grants = itertools.count(1)
        self._seqs = itertools.count(1)
        self._expecting: dict[str, asyncio.Future[Outcome]] = {}
        """Parties with runs that were settled without their last row, and the write of the last of these."""

    def new_grant(self) -> int:
        return next(self._grants)

    @property
    def num_held(self) -> int:
        return sum(lane.num_held for lane in self._lanes.values())

    async def reserve(self, party: str, grant: int, wish: Wish, run: str) -> Outcome:
        """A Hold or a Refusal, once it is written, or set aside for it. Raises BusError."""
        lane = self._lane(party)
        if outcome := lane.let_in(grant, wish, run):
            return outcome
        return await lane.submit(Change(grant, lambda account, _: account.reserve(wish, run), takes=True))

    def settle(self, party: str, grant: int, use: Use, *, can_wait: bool = False) -> asyncio.Future[Outcome]:
        def settle(account: Account, hold: Hold) -> None:
            account.settle(hold, use)

        done = self._lane(party).submit(Change(grant, settle, takes=False), can_wait=can_wait)
        if not use.is_all:
            self._expecting[party] = done
        return done

    def has_room(self, party: str) -> bool:
        """Far from its limits, as last seen from here."""
        lane = self._lanes.get(party)
        return lane is not None and lane.has_room

    async def settle_lost(self, party: str, edge: str, seq: int, uses: Mapping[str, Use]) -> Outcome | None:
        """What an edge that is gone held there. None: others have done it, or it lives."""
        return await self._change_once(party, lambda account: settle_lost(account, edge, seq, uses))

    async def settle_late(self, party: str, uses: Mapping[str, tuple[LateRun, Use]]) -> Outcome | None:
        """What runs came to that were settled before, as these LateRuns. None: others have done it."""
        return await self._change_once(party, lambda account: settle_late(account, uses))

    async def raise_spent(self, party: str, seen: AccountState, spent_picos: int) -> Outcome | None:
        """The ledger had so much when the account was as `seen`. None: others have written it since."""
        return await self._change_once(party, lambda account: raise_spent(account, seen, spent_picos))

    async def _change_once(self, party: str, change: Callable[[Account], bool]) -> Outcome | None:
        """None: `change` found that it was not to be made any more."""
        is_ours = False

        def apply(account: Account, _: Hold) -> None:
            nonlocal is_ours
            is_ours = change(account)

        once = Change(self.new_grant(), apply, takes=False, is_seen_elsewhere=True)
        outcome = await self._lane(party).submit(once)
        return outcome if is_ours else None

    async def read(self, party: str) -> AccountState:
        """As it is now, of the period that this is."""
        await self._change_once(party, lambda _: False)
        return self._lane(party).seen or AccountState()

    def doubted(self, now: float) -> list[str]:
        """Accounts used here of which, as last seen, the ledger is to be asked what was spent."""
        seen = ((party, lane.seen) for party, lane in self._lanes.items())
        return [party for party, state in seen if state and state.doubt and state.doubt.look_at <= now]

    def release(
        self, party: str, grant: int, *, may_cost: bool = False, can_wait: bool = False
    ) -> asyncio.Future[Outcome]:
        """Of a grant that holds nothing there: nothing changes."""

        def release(account: Account, hold: Hold) -> None:
            account.release(hold, may_cost=may_cost)

        done = self._lane(party).submit(Change(grant, release, takes=False), can_wait=can_wait)
        if may_cost:
            self._expecting[party] = done
        return done

    def free_seat(self, party: str, grant: int) -> asyncio.Future[Outcome]:
        change = Change(grant, lambda account, hold: account.free_seat(hold), takes=False)
        return self._lane(party).submit(change)

    @property
    def expects_rows(self) -> bool:
        """Something was settled here of which ledger rows may say more."""
        return bool(self._expecting)

    def take_expecting(self) -> dict[str, AccountState]:
        """The accounts of which that is so, as last seen from here; once they are written not again."""
        seen = {party: self._lane(party).seen for party in self._expecting}
        self._expecting = {party: done for party, done in self._expecting.items() if not done.done()}
        return {party: state for party, state in seen.items() if state}

    def view(self, party: str) -> View | None:
        """As last seen from here; costs nothing."""
        lane = self._lanes.get(party)
        return lane.view() if lane else None

    async def flush(self, seconds: float) -> bool:
        """True once all that was given back is written; False: not within `seconds`."""
        busy = [asyncio.ensure_future(lane.settled()) for lane in self._lanes.values()]
        if not busy:
            return True
        _, pending = await asyncio.wait(busy, timeout=seconds)
        for task in pending:
            task.cancel()
        return not pending

    def _lane(self, party: str) -> Lane:
        lane = self._lanes.get(party)
        if lane is None:
            if len(self._lanes) >= MAX_LANES:
                kept = self._expecting.keys()
                self._lanes = {
                    name: each for name, each in self._lanes.items() if name in kept or not each.is_idle
                }
            account = KnownAccount(
                party,
                self._bucket,
                edge=self._edge,
                rule=lambda: self._rules.rule(party),
                wall=self._wall,
                gone=self._gone.among,
                seqs=self._seqs,
            )
            lane = self._lanes[party] = Lane(account, self._edge)
        return lane
