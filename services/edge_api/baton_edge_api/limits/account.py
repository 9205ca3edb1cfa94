"""The arithmetic of one account: reserve, settle, release. Pure.

A window of 60 s opens with the first request that is let in and counts what was admitted in it; a reservation
counts as used until it is settled. Money has a period instead: what is held by requests under way and what is
spent are told apart.

    requests, tokens:  used = settled + reserved in this window; remaining = limit − used
    seats:             sum over edges of requests under way
    money:             spent + held ≤ budget, where held is a sum over edges

Knows nothing of the bus, of keys or of other accounts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from baton_contracts.limits import (
    WINDOW_SECONDS,
    AccountState,
    Budget,
    LateRun,
    LimitRule,
    Slot,
    period_name,
)
from baton_edge_api.limits.holds import Hold, Use
from baton_edge_api.limits.spare import Spare
from baton_edge_api.limits.standing import Refusal, View
from baton_edge_api.limits.wish import Wish, fitted

_ROOM = 4
_MOST_SPARE = 16
"""An edge sets aside no more than this part of a limit."""
_SEAT_SECONDS = 1.0
"""When a seat, or money that others hold, may be free again is nobody's knowledge."""
LATE_SECONDS = 300.0
"""How long a ledger row of a request that was settled without it may still come."""
MOST_LATE = 256
"""Runs in one account of which rows may come: it is written with each request. `baton limits recount` finds
what others cost."""


@dataclass
class _Figures:
    """An AccountState that can be changed."""

    window_start: float
    requests: int
    tokens: int
    period: str
    spent_picos: int
    alerted: bool
    slots: dict[str, Slot]
    late: dict[str, LateRun]


class Account:
    """One account while it is being changed; `edge` is whose slot its holds are in."""

    def __init__(self, state: AccountState, rule: LimitRule, edge: str, now: float) -> None:
        self._rule = rule
        self._edge = edge
        self._now = now
        self._f = _Figures(
            state.window_start,
            state.requests,
            state.tokens,
            state.period,
            state.spent_picos,
            state.alerted,
            dict(state.slots),
            dict(state.late),
        )
        self._roll(state)

    @property
    def state(self) -> AccountState:
        f = self._f
        return AccountState(
            window_start=f.window_start,
            requests=f.requests,
            tokens=f.tokens,
            period=f.period,
            spent_picos=f.spent_picos,
            alerted=f.alerted,
            slots=dict(f.slots),
            late=dict(f.late),
        )

    def _roll(self, state: AccountState) -> None:
        """Windows and periods that are over count no more. A clock that is behind ours opens none anew; a
        window that begins later than ours could end was opened by one that went wrong."""
        f = self._f
        if f.window_start and abs(self._now - f.window_start) >= WINDOW_SECONDS:
            f.window_start, f.requests, f.tokens = 0.0, 0, 0
        if budget := self._rule.budget:
            current = period_name(budget.period, self._now)
            if f.period != current:
                f.period, f.spent_picos, f.alerted = current, 0, False
                f.late = state.late_in(current)

    # Slots

    def set_slot(self, slot: Slot) -> None:
        self._f.slots[self._edge] = slot

    def lose_edge(self, edge: str) -> None:
        """It is gone: its seats are free again; what its requests may have used waits to be settled."""
        if (slot := self._f.slots.pop(edge, None)) and slot.runs:
            self._f.slots[edge] = slot.model_copy(update={"seats": 0})

    def settle_lost(self, edge: str, seq: int, uses: Mapping[str, Use]) -> bool:
        """What an edge that is gone had reserved is replaced by what its runs came to. False, and nothing
        happens, if that was done before, or if it has written since `seq`: then it lives."""
        f, slot = self._f, self._f.slots.get(edge)
        if slot is None or slot.seq != seq:
            return False
        del f.slots[edge]
        if slot.window_start and slot.window_start == f.window_start:
            counted = {run: tokens for run, tokens in slot.runs.items() if tokens}
            f.tokens = max(0, f.tokens + sum(uses[run].tokens - tokens for run, tokens in counted.items()))
        if self._rule.budget:
            f.spent_picos += sum(uses[run].picos for run in slot.runs)
            for run in slot.runs:
                self._expect_more(run, uses[run])
        return True

    def _expect_more(self, run: str, use: Use) -> None:
        """Its last ledger row may say more than `use` that it came to."""
        f = self._f
        if not use.is_all and run and len(f.late) < MOST_LATE:
            f.late[run] = LateRun(picos=use.picos, since=self._now)

    def settle_late(self, uses: Mapping[str, tuple[LateRun, Use]]) -> bool:
        """What runs came to beyond what the account said of them when it was looked up is spent now. False,
        and nothing happens, where others have written that since."""
        f = self._f
        ours = {run: found for run, found in uses.items() if f.late.get(run) == found[0]}
        for run, (seen, use) in ours.items():
            f.spent_picos = max(0, f.spent_picos + use.picos - seen.picos)
            f.late[run] = seen.model_copy(update={"picos": use.picos})
            if use.is_all or abs(self._now - seen.since) >= LATE_SECONDS:
                del f.late[run]
        return bool(ours)

    @property
    def _slot(self) -> Slot:
        return self._f.slots.get(self._edge) or Slot()

    def _hold_more(self, seats: int, picos: int) -> None:
        slot = self._slot
        self.set_slot(
            Slot(
                seq=slot.seq,
                seats=max(0, slot.seats + seats),
                held_picos=max(0, slot.held_picos + picos),
            )
        )

    @property
    def _seats(self) -> int:
        return sum(slot.seats for slot in self._f.slots.values())

    @property
    def _held_picos(self) -> int:
        return sum(slot.held_picos for slot in self._f.slots.values())

    # Reserve

    def reserve(self, wish: Wish, run: str = "") -> Hold | Refusal:
        """All of it or, with a Refusal, nothing. `run` is the request's name (`Run.name`)."""
        rule, f = self._rule, self._f
        wish = fitted(wish, self._tokens_left, self._picos_left)
        tokens = wish.num_prompt_tokens + wish.num_output_tokens
        picos = wish.price.at_most(wish.num_prompt_tokens, wish.num_output_tokens)
        if refusal := self._refusal(tokens, picos):
            return refusal
        hold = Hold(
            requests=0 if rule.requests_per_minute is None else 1,
            tokens=None if rule.tokens_per_minute is None else tokens,
            seats=0 if rule.concurrent is None else 1,
            picos=None if rule.budget is None else picos,
            run="" if rule.tokens_per_minute is None and rule.budget is None else run,
        )
        if hold.requests or hold.tokens is not None:
            f.window_start = f.window_start or self._now
            f.requests += hold.requests
            f.tokens += hold.tokens or 0
            hold = replace(hold, window_start=f.window_start)
        if hold.seats or hold.picos:
            self._hold_more(hold.seats, hold.picos or 0)
        return hold

    @property
    def _tokens_left(self) -> int | None:
        limit = self._rule.tokens_per_minute
        return None if limit is None else limit - self._f.tokens

    @property
    def _picos_left(self) -> int | None:
        budget = self._rule.budget
        return None if budget is None else budget.picos - self._f.spent_picos - self._held_picos

    def _refusal(self, tokens: int, picos: int) -> Refusal | None:
        rule, f = self._rule, self._f
        if rule.budget and (refusal := self._over_budget(rule.budget, picos)):
            return refusal
        reset = self._reset_seconds or WINDOW_SECONDS
        if rule.requests_per_minute is not None and f.requests + 1 > rule.requests_per_minute:
            return Refusal("requests", rule.requests_per_minute, f.requests, 1, reset)
        if rule.tokens_per_minute is not None and f.tokens + tokens > rule.tokens_per_minute:
            return Refusal("tokens", rule.tokens_per_minute, f.tokens, tokens, reset)
        if rule.concurrent is not None and self._seats + 1 > rule.concurrent:
            return Refusal("concurrent", rule.concurrent, self._seats, 1, _SEAT_SECONDS)
        return None

    def _over_budget(self, budget: Budget, picos: int) -> Refusal | None:
        """Without a price nothing is refused until the budget is spent."""
        spent, held = self._f.spent_picos, self._held_picos
        if spent >= budget.picos or spent + picos > budget.picos:
            return Refusal("budget", budget.picos, spent, picos, 0.0)
        if spent + held + picos > budget.picos:
            return Refusal("budget_held", budget.picos, spent + held, picos, _SEAT_SECONDS)
        return None

    # Settle

    def settle(self, hold: Hold, use: Use) -> None:
        """Replaces what was reserved by what was used. Of a window that is over nothing is given back; what
        was used beyond the guess counts now."""
        f = self._f
        if hold.tokens is not None:
            more = use.tokens - hold.tokens
            if self._is_open(hold):
                f.tokens = max(0, f.tokens + more)
            elif more > 0:
                f.window_start = f.window_start or self._now
                f.tokens += more
        self._let_go(hold)
        if hold.picos is not None:
            f.spent_picos += use.picos
            self._expect_more(hold.run, use)

    def release(self, hold: Hold, *, may_cost: bool = False) -> None:
        """The request was refused further on: as if it had never been. `may_cost`: or so it seems."""
        f = self._f
        if self._is_open(hold):
            f.requests = max(0, f.requests - hold.requests)
            f.tokens = max(0, f.tokens - (hold.tokens or 0))
        self._let_go(hold)
        if hold.picos is not None:
            self._expect_more(hold.run, Use(is_all=not may_cost))

    def free_seat(self, hold: Hold) -> Hold:
        """Its seat alone, ahead of the rest: its client is gone."""
        if hold.seats:
            self._hold_more(-hold.seats, 0)
        return replace(hold, seats=0)

    def _let_go(self, hold: Hold) -> None:
        if hold.seats or hold.picos:
            self._hold_more(-hold.seats, -(hold.picos or 0))

    def _is_open(self, hold: Hold) -> bool:
        return hold.window_start > 0 and hold.window_start == self._f.window_start

    # Ahead of requests

    def set_aside(self, num_requests: int, num_tokens: int) -> Spare | None:
        """For requests to come, as many as there is room for. None: there is none, or money is counted, of
        which every pico is in the name of a request."""
        rule, f = self._rule, self._f
        requests, seats, tokens = rule.requests_per_minute, rule.concurrent, rule.tokens_per_minute
        if rule.budget or not self.has_room or (requests is not None and f.requests * _ROOM > requests):
            return None
        limits = (each for each in (requests, seats) if each is not None)
        num_requests = min((num_requests, *(limit // _MOST_SPARE for limit in limits)))
        num_tokens = 0 if tokens is None else min(num_tokens, tokens // _MOST_SPARE)
        if num_requests < 1:
            return None
        is_counted = requests is not None or tokens is not None
        if is_counted:
            f.window_start = f.window_start or self._now
        spare = Spare(rule, f.window_start if is_counted else 0.0, num_requests, num_tokens)
        f.requests += spare.hold.requests
        f.tokens += num_tokens
        self._hold_more(spare.hold.seats, 0)
        return spare

    # Look

    @property
    def has_room(self) -> bool:
        """Not a quarter of anything that a settlement gives back is taken: one that is written a little later
        turns nobody away."""
        rule, f = self._rule, self._f
        if rule.concurrent is not None and self._seats * _ROOM > rule.concurrent:
            return False
        if rule.tokens_per_minute is not None and f.tokens * _ROOM > rule.tokens_per_minute:
            return False
        if budget := rule.budget:
            taken = f.spent_picos + self._held_picos
            return taken * _ROOM * 100 <= budget.picos * budget.alert_percent
        return True

    def begin_alert(self) -> bool:
        """True once a period: the share of the budget that is told has been spent."""
        if self._f.alerted or not self._alert_due:
            return False
        self._f.alerted = True
        return True

    @property
    def _alert_due(self) -> bool:
        budget = self._rule.budget
        return budget is not None and self._f.spent_picos * 100 >= budget.picos * budget.alert_percent

    @property
    def _reset_seconds(self) -> float:
        start = self._f.window_start
        return min(WINDOW_SECONDS, max(0.0, start + WINDOW_SECONDS - self._now)) if start else 0.0

    @property
    def view(self) -> View:
        rule, f = self._rule, self._f
        percent = None
        if rule.budget and self._alert_due:
            percent = f.spent_picos * 100 // rule.budget.picos if rule.budget.picos else 100
        return View(
            limit_requests=rule.requests_per_minute,
            remaining_requests=max(0, (rule.requests_per_minute or 0) - f.requests),
            limit_tokens=rule.tokens_per_minute,
            remaining_tokens=max(0, (rule.tokens_per_minute or 0) - f.tokens),
            reset_seconds=self._reset_seconds,
            spent_percent=percent,
        )
