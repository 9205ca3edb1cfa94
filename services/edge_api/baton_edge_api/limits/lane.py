"""The changes of one account at this edge: those that wait are joined into one write (group commit).

    changes wait ──▶ account as last seen ──▶ applied in order ──▶ replace if still that version
         ▲                  ▲                     │ refused on one that may be old: read, apply again
         │                  └─── read again ◀─────┤ lost the race
         └────────── what only gives back ◀───────┘ unknown whether written: read, and what landed is done

Owns when changes are made, and who hears of it; `known_account.py` has what is known. A change that only
gives back is never dropped: it waits until the bus is there again. One that takes fails with BusError. One
that nobody waits for lets up to PATIENCE_SECONDS pass: it shares the write of the next request, if one comes.

Where an account has room and is asked for often, each write also sets something aside (`spare.py`): requests
are let in from there at once, and the next write, PATIENCE_SECONDS later at most, puts their names down.
"""

from __future__ import annotations

import asyncio
import logging
import zlib

from baton_common.errors import BusError
from baton_contracts.limits import AccountState
from baton_edge_api.limits.changes import Applied, Change, Outcome
from baton_edge_api.limits.holds import Hold
from baton_edge_api.limits.known_account import KnownAccount
from baton_edge_api.limits.spare import Demand
from baton_edge_api.limits.standing import View
from baton_edge_api.limits.wish import Wish

log = logging.getLogger(__name__)

MAX_BATCH = 256
MAX_RACES = 40
"""Lost in a row: with the pauses between them, about a second."""
_LONGEST_PAUSE_SECONDS = 0.05
_TURN = 4
"""Writes in a row: an edge that writes all the time knows the revision and would win every race."""
_TURN_SECONDS = 0.001
RETRY_SECONDS = 0.5
PATIENCE_SECONDS = 0.05
"""Short beside what an edge that is lost takes to be noticed."""


class Lane:
    def __init__(self, account: KnownAccount, edge: str) -> None:
        self._account = account
        self._edge = edge
        self._waiting: list[Change] = []
        self._running: asyncio.Task[None] | None = None
        self._is_away = False
        self._is_urgent = asyncio.Event()
        self._is_writing = False
        self._demand = Demand(PATIENCE_SECONDS)
        self.has_room = False
        """As of the last write: what is given back may wait for the next one."""

    @property
    def is_idle(self) -> bool:
        """Nothing is held, and nothing waits."""
        return not self._account.num_held and not self._waiting and self._running is None

    @property
    def num_held(self) -> int:
        return self._account.num_held

    @property
    def seen(self) -> AccountState | None:
        """As last read or written; None before that."""
        return self._account.state

    def view(self) -> View | None:
        """As last seen; None before anything was."""
        return self._account.view() if self._account.state else None

    def let_in(self, grant: int, wish: Wish, run: str) -> Outcome | None:
        """From what is set aside, without a write. None: it takes one."""
        if self._is_writing or self._is_away or not (found := self._account.let_in(grant, wish, run)):
            return None
        self._note_demand(found)
        return found

    def submit(self, change: Change, *, can_wait: bool = False) -> asyncio.Future[Outcome]:
        """Goes into the next write, after all that were submitted before."""
        self._waiting.append(change)
        if not can_wait:
            self._is_urgent.set()
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return change.done

    async def settled(self) -> None:
        """Returns when nothing waits to be written, and nothing is set aside."""
        while self._running:
            self._demand.clear()
            self._is_urgent.set()
            await asyncio.wait({self._running})

    async def _run(self) -> None:
        in_a_row = 0
        try:
            while self._waiting or self._account.spare:
                await self._until_urgent()
                # What the same turn of the loop submits shares the write; now and then another edge, which
                # must read before it can write, gets its turn.
                in_a_row += 1
                await asyncio.sleep(0 if in_a_row % _TURN else _TURN_SECONDS)
                batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
                if not self._waiting:
                    self._is_urgent.clear()
                self._is_writing = True
                try:
                    await self._commit(batch)
                except BusError as error:
                    await self._failed(batch, error)
                except Exception as error:  # a fault of ours: whoever waits hears of it
                    for change in (*batch, *self._waiting):
                        _fail(change, error)
                    self._waiting.clear()
                    self._account.spare = None
                    raise
                finally:
                    self._is_writing = False
        finally:
            self._running = None

    async def _until_urgent(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._is_urgent.wait()
        except TimeoutError:
            return

    async def _commit(self, batch: list[Change]) -> None:
        """Raises BusError; what of `batch` is then still to be done stays in it."""
        account = self._account
        is_fresh = account.is_in_doubt or any(change.is_seen_elsewhere for change in batch)
        if is_fresh:
            await self._read(batch)
        for race in range(MAX_RACES):
            applied = account.apply(batch)
            if applied.refused_any and not is_fresh:
                await self._read(batch)
                is_fresh = True
                continue
            applied.set_aside(*self._demand.ahead(account.wall()))
            if applied.state == account.state or await account.write(applied):
                self._done(applied)
                return
            if race > 2:
                await asyncio.sleep(self._pause(race))
            await self._read(batch)
            is_fresh = True
        raise BusError(account.entry, f"lost {MAX_RACES} races in a row")

    def _pause(self, race: int) -> float:
        """Different for each edge and race, so that the same ones do not meet again; longer each time."""
        share = zlib.crc32(f"{self._edge}{race}".encode()) % 100 / 100
        return share * min(_LONGEST_PAUSE_SECONDS, 0.001 * 2 ** (race - 2))

    async def _read(self, batch: list[Change]) -> None:
        """Raises BusError. `batch` loses what a doubtful write carried out already, and begins with undoing
        what that took for requests that were turned away meanwhile."""
        landed = await self._account.read()
        if landed is None:
            return
        undo: list[Change] = []
        carried_out: set[Change] = set()
        for change, outcome in landed.outcomes:
            if not change.takes:
                carried_out.add(change)
                _resolve(change, outcome)
            elif change.grant in landed.holds:
                undo.append(Change(change.grant, lambda account, hold: account.release(hold), takes=False))
        batch[:] = undo + [change for change in batch if change not in carried_out]

    def _done(self, applied: Applied) -> None:
        self._account.take(applied)
        self.has_room = applied.account.standing.has_room
        self._is_away = False
        for change, outcome in applied.outcomes:
            if change.takes:
                self._note_demand(outcome)
            _resolve(change, outcome)

    def _note_demand(self, outcome: Outcome) -> None:
        if isinstance(outcome.result, Hold):
            self._demand.note(outcome.result.tokens or 0, self._account.wall())

    async def _failed(self, batch: list[Change], error: BusError) -> None:
        """What takes is refused; what gives back waits."""
        if not self._is_away:
            log.warning("%s: not written: %s", self._account.entry, error)
        self._is_away = True
        for change in batch:
            if change.takes:
                _fail(change, error)
        kept = [change for change in batch if not change.takes]
        self._waiting = kept + self._waiting
        if (kept or self._account.spare) and not any(change.takes for change in self._waiting):
            await asyncio.sleep(RETRY_SECONDS)


def _fail(change: Change, error: Exception) -> None:
    if not change.done.done():
        change.done.set_exception(error)
        change.done.exception()  # whoever waited may have left


def _resolve(change: Change, outcome: Outcome) -> None:
    if not change.done.done():
        change.done.set_result(outcome)
