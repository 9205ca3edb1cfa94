"""An account as this edge knows it, and what requests at this edge hold in it.

    state as last read or written, its revision      ours: holds of requests, what is set aside
    a write of which nobody knows whether it landed: the slot's seq tells at the next read

Owns the holds, and that our slot says what they come to. Knows nothing of when changes are made.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence, Set

from baton_common.errors import BusError
from baton_contracts.base import MalformedMessage
from baton_contracts.limits import AccountState, LimitRule, Slot, use_entry
from baton_edge_api.bucket import Bucket, Conflict
from baton_edge_api.limits.account import Account
from baton_edge_api.limits.changes import Applied, Change, Outcome
from baton_edge_api.limits.holds import Hold
from baton_edge_api.limits.spare import Spare
from baton_edge_api.limits.standing import View
from baton_edge_api.limits.wish import Wish

log = logging.getLogger(__name__)


class KnownAccount:
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
        life of the process, whichever account asks."""
        self.entry = use_entry(party)
        self.wall = wall
        self.state: AccountState | None = None
        """As last read or written; None before that."""
        self.spare: Spare | None = None
        self._bucket = bucket
        self._edge = edge
        self._rule = rule
        self._gone = gone
        self._seqs = seqs
        self._revision = 0
        self._seq = 0
        """Of our last write that landed."""
        self._went_back = False
        """The store has lost it again: it was restored, with what it knew once."""
        self._holds: dict[int, Hold] = {}
        self._doubtful: tuple[int, Applied] | None = None

    @property
    def num_held(self) -> int:
        return len(self._holds)

    @property
    def is_in_doubt(self) -> bool:
        """It must be read before it can be changed."""
        return self.state is None or self._doubtful is not None

    def open(self) -> Account:
        """A copy with all that is known of it by now: our slot as our holds have it, nothing set aside,
        edges that are gone without their seats."""
        account = self._open_window()
        state = self.state or AccountState()
        for edge in self._gone(each for each in state.slots if each != self._edge):
            account.tally.lose_edge(edge)
        if self._went_back:
            account.tally.doubt_spent(0.0)
        own = Slot(
            seq=(state.slots.get(self._edge) or Slot()).seq,
            seats=sum(hold.seats for hold in self._holds.values()),
            held_picos=sum(hold.picos or 0 for hold in self._holds.values()),
        )
        if self._edge in state.slots or own.seats or own.held_picos:
            account.tally.slots[self._edge] = own
        return account

    def view(self) -> View:
        """How it stands by now: nothing of slots, so it costs the same however much is held."""
        return self._open_window().standing.view

    def _open_window(self) -> Account:
        account = Account(self.state or AccountState(), self._rule(), self._edge, self.wall())
        if self.spare:
            account.release(self.spare.hold)
        return account

    def apply(self, batch: Sequence[Change]) -> Applied:
        applied = Applied(self.open(), dict(self._holds), self._edge)
        for change in batch:
            applied.add(change)
        return applied

    def take(self, applied: Applied) -> None:
        """It is so: written, or no change at all."""
        self._holds = applied.holds
        self.spare = applied.spare

    def let_in(self, grant: int, wish: Wish, run: str) -> Outcome | None:
        """From what is set aside. None: it is not enough."""
        if self.spare is None or not (found := self.spare.let_in(wish, run, self._rule(), self.wall())):
            return None
        hold, self.spare = found
        self._holds[grant] = hold
        return Outcome(hold, self.view())

    async def write(self, applied: Applied) -> bool:
        """False: somebody was faster. Raises BusError, and then has noted its doubt."""
        seq = next(self._seqs)
        new = applied.sealed(seq)
        try:
            self._revision = await self._bucket.replace(self.entry, new.encode(), self._revision)
        except Conflict:
            return False
        except BusError:
            self._doubtful = (seq, applied)
            raise
        self.state, self._seq, self._went_back = new, seq, False
        return True

    async def read(self) -> Applied | None:
        """Returns the doubtful write, if it did land. Raises BusError."""
        value, self._revision = await self._bucket.read(self.entry)
        self.state = self._decode(value)
        slot = self.state.slots.get(self._edge)
        if slot is None:
            self._leave_to_others()
        elif slot.seq < self._seq:
            self._went_back = True
        doubtful, self._doubtful = self._doubtful, None
        if slot is None or doubtful is None or slot.seq != doubtful[0]:
            return None
        landed = doubtful[1]
        for change, _ in landed.outcomes:
            self._put_hold(change.grant, landed.holds.get(change.grant))
        self.spare = landed.spare
        return landed

    def _leave_to_others(self) -> None:
        """Our slot is out of the account: we were taken for dead, and what our requests had reserved until
        then is settled. They only have their seats yet."""
        self._holds = {grant: Hold(seats=hold.seats) for grant, hold in self._holds.items()}
        self.spare = None

    def _put_hold(self, grant: int, hold: Hold | None) -> None:
        if hold:
            self._holds[grant] = hold
        else:
            self._holds.pop(grant, None)

    def _decode(self, value: bytes) -> AccountState:
        """One that can't be read begins anew: nobody is locked out by a damaged entry."""
        if not value:
            return AccountState()
        try:
            return AccountState.decode(value)
        except MalformedMessage as error:
            log.error("%s begins anew: %s", self.entry, error)
            return AccountState()
