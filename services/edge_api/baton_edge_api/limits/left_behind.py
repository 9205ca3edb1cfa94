"""What edges that are gone had reserved: settled by those that live, with what the ledger says of it.

    an edge is lost ──▶ its slots in all accounts ──▶ a while later: still there? ──▶ the ledger ──▶ settled

The while is for the rest of the relay: it notices the loss as we do, stops what the lost edge asked for, and
stores its last rows. Until then the reservations stand, so that a budget holds. Edges that live do this one
after another; a slot goes in the same write that counts what was in it, so it counts once. Knows nothing of
how an account is written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from baton_common.errors import BusError, RequestFailed
from baton_contracts.base import MalformedMessage
from baton_contracts.limits import (
    USES,
    AccountState,
    LimitRule,
    Run,
    Slot,
    is_model,
    name_of_party,
    party_of_use,
    period_start,
)
from baton_contracts.records import UsageRecord
from baton_edge_api.limits.account import Use
from baton_edge_api.limits.accounts import Accounts
from baton_edge_api.limits.figures import LimitFigures
from baton_edge_api.limits.gone_edges import GoneEdges

log = logging.getLogger(__name__)

REST_SECONDS = 10.0
"""Until the relay has stored what it did for an edge that is gone: three times a lease."""
_TURN_SECONDS = 3.0
"""So much later each further edge looks: it finds the work done."""
_LOOK_SECONDS = 1.0


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
        figures: LimitFigures,
        *,
        rule: Callable[[str], LimitRule],
        stands_for: Callable[[str], tuple[str, ...]],
        living: Callable[[], list[str]],
        edge: str,
        wall: Callable[[], float],
    ) -> None:
        """`rule` is that of a party; `stands_for` names the models that may answer to a name; `living` are
        the edges that are ready."""
        self._accounts = accounts
        self._gone = gone
        self._bucket = bucket
        self._ledger = ledger
        self._figures = figures
        self._rule = rule
        self._stands_for = stands_for
        self._living = living
        self._edge = edge
        self._wall = wall

    async def run(self) -> None:
        """For ever: looks at the start, and when an edge is lost."""
        while True:
            self._gone.lost.clear()
            try:
                await self._clear()
            except BusError as error:
                log.warning("what edges left behind can't be looked for now: %s", error)
                await asyncio.sleep(REST_SECONDS)
            else:
                await self._until_lost()

    async def _clear(self) -> None:
        """Returns when nothing is left of those that are gone. Raises BusError."""
        seen = await self._find()
        while seen:
            await asyncio.sleep(REST_SECONDS + self._turn)
            found = await self._find()
            settled = await self._settle({left: found[left] for left in found.keys() & seen})
            seen = found.keys() - settled

    async def _until_lost(self) -> None:
        while not self._gone.lost.is_set():
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

    async def _find(self) -> dict[_Left, Slot]:
        slots: dict[_Left, Slot] = {}
        for entry, value in (await self._bucket.read_all(USES)).items():
            try:
                state = AccountState.decode(value)
            except MalformedMessage:
                continue  # it begins anew when somebody uses it, and that is logged
            for edge, slot in state.slots.items():
                slots[_Left(party_of_use(entry), edge, slot.seq)] = slot
        gone = self._gone.among({left.edge for left in slots} - {self._edge})
        return {left: slot for left, slot in slots.items() if left.edge in gone}

    async def _settle(self, lefts: Mapping[_Left, Slot]) -> Collection[_Left]:
        """Those that are settled, by us or by others."""
        names = {name for slot in lefts.values() for name in slot.runs}
        runs = {name: run for name in names if (run := Run.named(name))}
        try:
            rows = await self._ledger.rows(runs.values()) if runs else {}
        except RequestFailed as failed:
            log.warning("what edges left behind stays reserved for now: %s", failed.error.message)
            return ()
        of_names = {name: rows.get(run, []) for name, run in runs.items()}
        for left, slot in lefts.items():
            uses = {name: self._use(left.party, of_names.get(name, [])) for name in slot.runs}
            outcome = await self._accounts.settle_lost(left.party, left.edge, left.seq, uses)
            if outcome and outcome.alert:
                self._figures.alert(left.party, outcome.view)
            if outcome and slot.runs:
                self._figures.lost_runs.inc(len(slot.runs))
                log.info("%s: settled %d requests of %s, which is gone", left.party, len(uses), left.edge)
        return lefts.keys()

    def _use(self, party: str, rows: Collection[UsageRecord]) -> Use:
        """Of what `party` pays for; and of its money, what was spent in this period."""
        if is_model(party):
            name = name_of_party(party)
            rows = [row for row in rows if row.model == name or row.model in self._stands_for(name)]
        budget = self._rule(party).budget
        since = period_start(budget.period, self._wall()) if budget else 0.0
        return Use(
            tokens=sum(row.usage.prompt_tokens + row.usage.completion_tokens for row in rows),
            picos=sum(row.cost_picos or 0 for row in rows if row.ended_at >= since),
        )
