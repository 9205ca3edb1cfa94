"""The changes of one account at this edge: those that wait are joined into one write (group commit).

    changes wait ──▶ state as last seen ──▶ applied in order ──▶ replace if still that version
         ▲                  ▲                     │ refused on a state that may be old: read, apply again
         │                  └─── read again ◀─────┤ lost the race
         └────────── what only gives back ◀───────┘ unknown whether written: the slot's seq will tell

Owns what this edge's requests hold in the account. A change that only gives back is never dropped: it waits
until the bus is there again. One that takes fails with BusError. One that nobody waits for lets up to
PATIENCE_SECONDS pass: it shares the write of the next request, if one comes.

Where an account has room and is asked for often, each write also sets something aside (`spare.py`): requests
are let in from there at once, and the next write, PATIENCE_SECONDS later at most, puts their names down.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable, Iterable, Iterator, Set

from baton_common.errors import BusError
from baton_contracts.base import MalformedMessage
from baton_contracts.limits import AccountState, LimitRule, Slot, use_entry
from baton_edge_api.bucket import Bucket, Conflict
from baton_edge_api.limits.account import Account
from baton_edge_api.limits.changes import Applied, Change, Outcome
from baton_edge_api.limits.holds import Hold
from baton_edge_api.limits.spare import Demand, Spare
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
    def __init__(
        self,
        party: str,
        bucket: Bucket,
        *,
        edge: str,
        rule: Callable[[], LimitRule],
        wall: Callable[[], float],
        gone: Callable[[Iterable[str]], Set[str]],
        seqs: Iterator[int],
    ) -> None:
        """`gone` says which of these edges are known to be gone. `seqs` never gives a number twice in the
        life of the process, whichever lane asks."""
        self.party = party
        self._entry = use_entry(party)
        self._bucket = bucket
        self._edge = edge
        self._rule = rule
        self._wall = wall
        self._gone = gone
        self._waiting: list[Change] = []
        self._running: asyncio.Task[None] | None = None
        self._state: AccountState | None = None
        self._revision = 0
        self._holds: dict[int, Hold] = {}
        self._seqs = seqs
        self._doubtful: tuple[int, Applied] | None = None
        """A write of which nobody knows whether it landed."""
        self._is_away = False
        self._is_urgent = asyncio.Event()
        self._is_writing = False
        self._spare: Spare | None = None
        self._demand = Demand(PATIENCE_SECONDS)
        self.has_room = False
        """As of the last write: what is given back may wait for the next one."""

    @property
    def is_idle(self) -> bool:
        """Nothing is held, and nothing waits."""
        return not self._holds and not self._waiting and self._running is None

    def let_in(self, grant: int, wish: Wish, run: str) -> Outcome | None:
        """From what is set aside, without a write. None: it takes one."""
        if self._spare is None or self._state is None or self._is_writing or self._is_away:
            return None
        now = self._wall()
        if (found := self._spare.let_in(wish, run, self._rule(), now)) is None:
            return None
        hold, self._spare = found
        self._holds[grant] = hold
        self._demand.note(hold.tokens or 0, now)
        return Outcome(hold, self._open(self._state).view)

    @property
    def num_held(self) -> int:
        return len(self._holds)

    @property
    def seen(self) -> AccountState | None:
        """As last read or written; None before that."""
        return self._state

    def view(self) -> View | None:
        """As last seen; None before anything was."""
        return self._open(self._state).view if self._state else None

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
            while self._waiting or self._spare:
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
                    self._spare = None
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
        is_fresh = self._state is None or self._doubtful is not None
        if is_fresh:
            await self._read(batch)
        for race in range(MAX_RACES):
            state = self._state
            assert state is not None
            applied = Applied(self._open(state), dict(self._holds), self._edge)
            for change in batch:
                applied.add(change)
            if applied.refused_any and not is_fresh:
                await self._read(batch)
                is_fresh = True
                continue
            applied.set_aside(*self._demand.ahead(self._wall()))
            if applied.state == state:
                self._done(applied)
                return
            if await self._write(applied):
                self._done(applied)
                return
            if race > 2:
                await asyncio.sleep(self._pause(race))
            await self._read(batch)
            is_fresh = True
        raise BusError(self._entry, f"lost {MAX_RACES} races in a row")

    def _pause(self, race: int) -> float:
        """Different for each edge and race, so that the same ones do not meet again; longer each time."""
        share = zlib.crc32(f"{self._edge}{race}".encode()) % 100 / 100
        return share * min(_LONGEST_PAUSE_SECONDS, 0.001 * 2 ** (race - 2))

    async def _write(self, applied: Applied) -> bool:
        """False: somebody was faster. Raises BusError, and then has noted its doubt."""
        seq = next(self._seqs)
        new = applied.sealed(seq)
        try:
            self._revision = await self._bucket.replace(self._entry, new.encode(), self._revision)
        except Conflict:
            return False
        except BusError:
            self._doubtful = (seq, applied)
            raise
        self._state = new
        return True

    async def _read(self, batch: list[Change]) -> None:
        """Raises BusError. `batch` loses what a doubtful write carried out already, and begins with undoing
        what that took for requests that were turned away meanwhile."""
        value, self._revision = await self._bucket.read(self._entry)
        self._state = _decode(self._entry, value)
        slot = self._state.slots.get(self._edge)
        if slot is None:
            self._leave_to_others()
        if self._doubtful is None:
            return
        seq, sent = self._doubtful
        self._doubtful = None
        if slot is None or slot.seq != seq:
            return
        self._spare = sent.spare
        undo: list[Change] = []
        carried_out: set[Change] = set()
        for change, outcome in sent.outcomes:
            self._put_hold(change.grant, sent.holds.get(change.grant))
            if not change.takes:
                carried_out.add(change)
                _resolve(change, outcome)
            elif change.grant in sent.holds:
                undo.append(Change(change.grant, lambda account, hold: account.release(hold), takes=False))
        batch[:] = undo + [change for change in batch if change not in carried_out]

    def _leave_to_others(self) -> None:
        """Our slot is out of the account: we were taken for dead, and what our requests had reserved until
        then is settled. They only have their seats yet."""
        self._holds = {grant: Hold(seats=hold.seats) for grant, hold in self._holds.items()}
        self._spare = None

    def _put_hold(self, grant: int, hold: Hold | None) -> None:
        if hold:
            self._holds[grant] = hold
        else:
            self._holds.pop(grant, None)

    def _open(self, state: AccountState) -> Account:
        account = Account(state, self._rule(), self._edge, self._wall())
        for edge in self._gone(each for each in state.slots if each != self._edge):
            account.lose_edge(edge)
        if self._spare:
            account.release(self._spare.hold)
        own = Slot(
            seq=(state.slots.get(self._edge) or Slot()).seq,
            seats=sum(hold.seats for hold in self._holds.values()),
            held_picos=sum(hold.picos or 0 for hold in self._holds.values()),
        )
        if self._edge in state.slots or own.seats or own.held_picos:
            account.set_slot(own)
        return account

    def _done(self, applied: Applied) -> None:
        self._holds = applied.holds
        self._spare = applied.spare
        self.has_room = applied.account.has_room
        self._is_away = False
        for change, outcome in applied.outcomes:
            if change.takes and isinstance(outcome.result, Hold):
                self._demand.note(outcome.result.tokens or 0, self._wall())
            _resolve(change, outcome)

    async def _failed(self, batch: list[Change], error: BusError) -> None:
        """What takes is refused; what gives back waits."""
        if not self._is_away:
            log.warning("%s: not written: %s", self._entry, error)
        self._is_away = True
        for change in batch:
            if change.takes:
                _fail(change, error)
        kept = [change for change in batch if not change.takes]
        self._waiting = kept + self._waiting
        if (kept or self._spare) and not any(change.takes for change in self._waiting):
            await asyncio.sleep(RETRY_SECONDS)


def _fail(change: Change, error: Exception) -> None:
    if not change.done.done():
        change.done.set_exception(error)
        change.done.exception()  # whoever waited may have left


def _resolve(change: Change, outcome: Outcome) -> None:
    if not change.done.done():
        change.done.set_result(outcome)


def _decode(entry: str, value: bytes) -> AccountState:
    """An account that can't be read begins anew: nobody is locked out by a damaged entry."""
    if not value:
        return AccountState()
    try:
        return AccountState.decode(value)
    except MalformedMessage as error:
        log.error("%s begins anew: %s", entry, error)
        return AccountState()
