"""The numbers of one account while they are being changed. Pure.

    requests, tokens:  of the window that is open, settled and reserved
    spent:             of the budget's period
    seats, held money: sums over edges, each of which has a slot of its own
    late:              runs that were settled before the ledger had all of them

Owns what is over: what is left of an older window or period counts no more. Knows nothing of limits, nor of
what a request wants.
"""

from __future__ import annotations

from collections.abc import Mapping

from baton_contracts.limits import WINDOW_SECONDS, AccountState, Budget, Doubt, LateRun, Slot, period_name

LATE_SECONDS = 300.0
"""How long a ledger row of a request that was settled without it may still come."""
MOST_LATE = 256
"""Runs in one account of which rows may come: it is written with each request. What more of them cost is
found when the ledger is asked for all."""
LOOK_AGAIN_SECONDS = 60.0
TRUST_SECONDS = 86_400.0
"""What the ledger does not have by then it will not get."""


class Tally:
    def __init__(self, state: AccountState, budget: Budget | None, now: float) -> None:
        self.now = now
        self.window_start = state.window_start
        self.requests = state.requests
        self.tokens = state.tokens
        self.period = state.period
        self.spent_picos = state.spent_picos
        self.alerted = state.alerted
        self.budget_set_at = state.budget_set_at
        self.slots = dict(state.slots)
        self.late = dict(state.late)
        self.doubt = state.doubt
        self._roll(state, budget)

    def _roll(self, state: AccountState, budget: Budget | None) -> None:
        """A clock that is behind ours opens no window anew; one that begins later than ours could end was
        opened by one that went wrong."""
        if self.window_start and abs(self.now - self.window_start) >= WINDOW_SECONDS:
            self.window_start, self.requests, self.tokens = 0.0, 0, 0
        if budget:
            current = period_name(budget.period, self.now)
            is_next = len(self.period) == len(current) and self.budget_set_at == budget.set_at
            if not is_next:  # it was not counted from its period's beginning
                self.doubt_spent(0.0)
                self.budget_set_at = budget.set_at
            if self.period != current:
                self.period, self.spent_picos, self.alerted = current, 0, False
                self.late = state.late_in(current)

    @property
    def state(self) -> AccountState:
        return AccountState(
            window_start=self.window_start,
            requests=self.requests,
            tokens=self.tokens,
            period=self.period,
            spent_picos=self.spent_picos,
            alerted=self.alerted,
            budget_set_at=self.budget_set_at,
            slots=dict(self.slots),
            late=dict(self.late),
            doubt=self.doubt,
        )

    # The window

    def open_window(self) -> float:
        """If none is. Returns when it began."""
        self.window_start = self.window_start or self.now
        return self.window_start

    def count(self, num_requests: int, num_tokens: int) -> None:
        """More of both, or fewer."""
        self.requests = max(0, self.requests + num_requests)
        self.tokens = max(0, self.tokens + num_tokens)

    @property
    def reset_seconds(self) -> float:
        """Until the window ends; 0: none is open."""
        if not self.window_start:
            return 0.0
        return min(WINDOW_SECONDS, max(0.0, self.window_start + WINDOW_SECONDS - self.now))

    # Slots

    @property
    def seats(self) -> int:
        return sum(slot.seats for slot in self.slots.values())

    @property
    def held_picos(self) -> int:
        return sum(slot.held_picos for slot in self.slots.values())

    def hold_more(self, edge: str, seats: int, picos: int) -> None:
        slot = self.slots.get(edge) or Slot()
        self.slots[edge] = Slot(
            seq=slot.seq, seats=max(0, slot.seats + seats), held_picos=max(0, slot.held_picos + picos)
        )

    def lose_edge(self, edge: str) -> None:
        """It is gone: its seats are free again; what its requests may have used waits to be settled."""
        if (slot := self.slots.pop(edge, None)) and slot.runs:
            self.slots[edge] = slot.model_copy(update={"seats": 0})

    # What the ledger says when an edge could not

    def expect_more(self, run: str, picos: int) -> None:
        """Its last ledger row may say more than these, which are in `spent_picos`."""
        if run and len(self.late) < MOST_LATE:
            self.late[run] = LateRun(picos=picos, since=self.now)
        elif run:
            self.doubt_spent(LATE_SECONDS)

    def take_left(self, edge: str, seq: int) -> Mapping[str, int] | None:
        """The runs of an edge that is gone, once: with the tokens that each has in the open window. None:
        that was done before, or it has written since `seq`: then it lives."""
        slot = self.slots.get(edge)
        if slot is None or slot.seq != seq:
            return None
        del self.slots[edge]
        is_open = slot.window_start and slot.window_start == self.window_start
        return slot.runs if is_open else dict.fromkeys(slot.runs, 0)

    def doubt_spent(self, seconds: float) -> None:
        """The ledger may have more than `spent_picos`; it is asked after so long."""
        self.doubt = Doubt(since=self.now, look_at=self.now + seconds)

    def look_again(self) -> None:
        """It was asked now, and is again when the doubt is twice as old; a day later no more."""
        if doubt := self.doubt:
            age = abs(self.now - doubt.since)
            look_at = self.now + max(LOOK_AGAIN_SECONDS, age)
            self.doubt = doubt.model_copy(update={"look_at": look_at}) if age < TRUST_SECONDS else None
