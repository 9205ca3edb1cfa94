"""What edges that are gone had reserved, settled by those that live with what the ledger says of it; and what
was settled by anybody before its last row was there.

    an edge is lost ──▶ its slots in all accounts ──▶ a while later: still there? ──▶ the ledger ──▶ settled
    an end was not heard ──▶ runs without their last row ──▶ looked up again, for minutes ──▶ added

The while is for the rest of the relay: it notices the loss as we do, stops what the lost edge asked for, and
stores its last rows. Until then the reservations stand, so that a budget holds. Edges that live do this one
after another; a slot goes in the same write that counts what was in it, so it counts once. Knows nothing of
how an account is written.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from baton_common.errors import BusError, RequestFailed
from baton_contracts.base import MalformedMessage
from baton_contracts.limits import USES, AccountState, Run, Slot, party_of_use
from baton_contracts.records import UsageRecord
from baton_edge_api.limits.accounts import Accounts
from baton_edge_api.limits.changes import Outcome
from baton_edge_api.limits.figures import LimitFigures
from baton_edge_api.limits.gone_edges import GoneEdges
from baton_edge_api.limits.run_costs import RunCosts

log = logging.getLogger(__name__)

REST_SECONDS = 10.0
"""Until the relay has stored what it did for an edge that is gone: three times a lease."""
OWN_LOOK_SECONDS = 5.0
"""Until the row of a request is there whose end this edge did not hear: its gateway waits 2 s for it."""
LATE_LOOK_SECONDS = 60.0
"""Between two looks for rows that have not come."""
_TURN_SECONDS = 3.0
"""So much later each further edge looks: it finds the work done."""
_LOOK_SECONDS = 1.0

Rows = Mapping[str, list[UsageRecord]]
"""By the name of their run."""


class Ledger(Protocol):
    async def rows(self, runs: Collection[Run]) -> Mapping[Run, list[UsageRecord]]:
        """Of each run that has some. Raises RequestFailed while the books can't say."""
        ...


class Bucket(Protocol):
    async def read_all(self, pattern: str) -> Mapping[str, bytes]:
        """All values whose entries match, by entry. Raises BusError."""
        ...


@dataclass(frozen=True)
class _Left:
    """A slot that was left behind; with another `seq` it is another one: its edge has written again."""

    party: str
    edge: str
    seq: int


class LeftBehind:
    def __init__(
        self,
        accounts: Accounts,
        gone: GoneEdges,
        bucket: Bucket,
        ledger: Ledger,
        costs: RunCosts,
        figures: LimitFigures,
        *,
        living: Callable[[], list[str]],
        edge: str,
    ) -> None:
        """`living` are the edges that are ready."""
        self._accounts = accounts
        self._gone = gone
        self._bucket = bucket
        self._ledger = ledger
        self._costs = costs
        self._figures = figures
        self._living = living
        self._edge = edge

    async def run(self) -> None:
        """For ever: looks at the start, and when an edge is lost."""
        while True:
            self._gone.lost.clear()
            try:
                waits = await self._look_for_late_rows(await self._clear())
            except BusError as error:
                log.warning("what edges left behind can't be looked for now: %s", error)
                await asyncio.sleep(REST_SECONDS)
            else:
                await self._until_lost(LATE_LOOK_SECONDS + self._turn if waits else math.inf)

    async def _clear(self) -> Mapping[str, AccountState]:
        """The accounts, once no slot is left of those that are gone. Raises BusError."""
        seen: Collection[_Left] = ()
        while found := self._lost_slots(accounts := await self._read_accounts()):
            await self._settle({left: slot for left, slot in found.items() if left in seen})
            seen = found.keys()
            await asyncio.sleep(REST_SECONDS + self._turn)
        return accounts

    async def _until_lost(self, seconds: float) -> None:
        """Or until these are over. Meanwhile: what this edge settled without its last row."""
        now = asyncio.get_running_loop().time
        until, look_at = now() + seconds, math.inf
        while not self._gone.lost.is_set() and now() < until:
            if self._accounts.expects_rows:
                look_at = min(look_at, now() + OWN_LOOK_SECONDS)
            if now() >= look_at:
                look_at = math.inf
                if await self._look_for_late_rows(self._accounts.take_expecting()):
                    until = min(until, now() + LATE_LOOK_SECONDS + self._turn)
            self._gone.among(self._living())
            try:
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._gone.lost.wait()
            except TimeoutError:
                continue

    @property
    def _turn(self) -> float:
        """Seconds: by the order of their names."""
        return _TURN_SECONDS * sum(edge < self._edge for edge in self._living())

    async def _read_accounts(self) -> Mapping[str, AccountState]:
        """By party."""
        accounts: dict[str, AccountState] = {}
        for entry, value in (await self._bucket.read_all(USES)).items():
            try:
                accounts[party_of_use(entry)] = AccountState.decode(value)
            except MalformedMessage:
                continue  # it begins anew when somebody uses it, and that is logged
        return accounts

    def _lost_slots(self, accounts: Mapping[str, AccountState]) -> dict[_Left, Slot]:
        slots = {
            _Left(party, edge, slot.seq): slot
            for party, state in accounts.items()
            for edge, slot in state.slots.items()
        }
        gone = self._gone.among({left.edge for left in slots} - {self._edge})
        return {left: slot for left, slot in slots.items() if left.edge in gone}

    async def _settle(self, lefts: Mapping[_Left, Slot]) -> None:
        try:
            rows = await self._rows({name for slot in lefts.values() for name in slot.runs})
        except RequestFailed as failed:
            log.warning("what edges left behind stays reserved for now: %s", failed.error.message)
            return
        for left, slot in lefts.items():
            uses = {name: self._costs.use(left.party, Run.named(name), rows[name]) for name in slot.runs}
            outcome = await self._accounts.settle_lost(left.party, left.edge, left.seq, uses)
            self._tell(left.party, outcome)
            if outcome and slot.runs:
                self._figures.lost_runs.inc(len(slot.runs))
                log.info("%s: settled %d requests of %s, which is gone", left.party, len(uses), left.edge)

    async def _look_for_late_rows(self, accounts: Mapping[str, AccountState]) -> bool:
        """True: some may still come."""
        late = {party: state.late for party, state in accounts.items() if state.late}
        try:
            rows = await self._rows({name for runs in late.values() for name in runs})
        except RequestFailed as failed:
            log.warning("late rows can't be looked for now: %s", failed.error.message)
            return True
        may_come = False
        for party, runs in late.items():
            uses = {
                name: (seen, self._costs.use(party, Run.named(name), rows[name]))
                for name, seen in runs.items()
            }
            outcome = await self._accounts.settle_late(party, uses)
            self._tell(party, outcome)
            may_come |= outcome is None or not all(use.is_all for _, use in uses.values())
        return may_come

    async def _rows(self, names: Collection[str]) -> Rows:
        """Raises RequestFailed."""
        runs = {name: run for name in names if (run := Run.named(name))}
        rows: Mapping[Run, list[UsageRecord]] = await self._ledger.rows(runs.values()) if runs else {}
        return {name: rows.get(runs[name], []) if name in runs else [] for name in names}

    def _tell(self, party: str, outcome: Outcome | None) -> None:
        if outcome and outcome.alert:
            self._figures.alert(party, outcome.view)
