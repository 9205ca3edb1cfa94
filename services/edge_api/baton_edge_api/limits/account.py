"""What requests do to an account: reserve, settle, release. Pure.

A window of 60 s opens with the first request that is let in and counts what was admitted in it; a reservation
counts as used until it is settled. Money has a period instead: what is held by requests under way and what is
spent are told apart.

`tally.py` keeps the numbers, `standing.py` says what fits. Knows nothing of the bus, of keys or of other
accounts.
"""

from __future__ import annotations

from dataclasses import replace

from baton_contracts.limits import AccountState, LimitRule
from baton_edge_api.limits.holds import Hold, Use
from baton_edge_api.limits.spare import Spare
from baton_edge_api.limits.standing import ROOM, Refusal, Standing
from baton_edge_api.limits.tally import Tally
from baton_edge_api.limits.wish import Wish, fitted

_MOST_SPARE = 16
"""An edge sets aside no more than this part of a limit."""


class Account:
    """One account while it is being changed; `edge` is whose slot its holds are in."""

    def __init__(self, state: AccountState, rule: LimitRule, edge: str, now: float) -> None:
        self._rule = rule
        self._edge = edge
        self.tally = Tally(state, rule.budget, now)
        self.standing = Standing(self.tally, rule)

    @property
    def counts_money(self) -> bool:
        return self._rule.budget is not None

    # Reserve

    def reserve(self, wish: Wish, run: str = "") -> Hold | Refusal:
        """All of it or, with a Refusal, nothing. `run` is the request's name (`Run.name`)."""
        rule, standing = self._rule, self.standing
        wish = fitted(wish, standing.tokens_left, standing.picos_left)
        tokens = wish.num_prompt_tokens + wish.num_output_tokens
        picos = wish.price.at_most(wish.num_prompt_tokens, wish.num_output_tokens)
        if refusal := standing.refusal(tokens, picos):
            return refusal
        requests = 0 if rule.requests_per_minute is None else 1
        is_counted = requests or rule.tokens_per_minute is not None
        hold = Hold(
            window_start=self.tally.open_window() if is_counted else 0.0,
            requests=requests,
            tokens=None if rule.tokens_per_minute is None else tokens,
            seats=0 if rule.concurrent is None else 1,
            picos=None if rule.budget is None else picos,
            run="" if rule.tokens_per_minute is None and rule.budget is None else run,
        )
        self._hold(hold)
        return hold

    def set_aside(self, num_requests: int, num_tokens: int) -> Spare | None:
        """For requests to come, as many as there is room for. None: there is none, or money is counted, of
        which every pico is in the name of a request."""
        rule, tally = self._rule, self.tally
        requests, seats, tokens = rule.requests_per_minute, rule.concurrent, rule.tokens_per_minute
        is_full = requests is not None and tally.requests * ROOM > requests
        if rule.budget or is_full or not self.standing.has_room:
            return None
        limits = (each for each in (requests, seats) if each is not None)
        num_requests = min((num_requests, *(limit // _MOST_SPARE for limit in limits)))
        num_tokens = 0 if tokens is None else min(num_tokens, tokens // _MOST_SPARE)
        if num_requests < 1:
            return None
        is_counted = requests is not None or tokens is not None
        window_start = tally.open_window() if is_counted else 0.0
        spare = Spare(rule, window_start, num_requests, num_tokens)
        self._hold(spare.hold)
        return spare

    def _hold(self, hold: Hold) -> None:
        self.tally.count(hold.requests, hold.tokens or 0)
        if hold.seats or hold.picos:
            self.tally.hold_more(self._edge, hold.seats, hold.picos or 0)

    # Settle

    def settle(self, hold: Hold, use: Use) -> None:
        """Replaces what was reserved by what was used. Of a window that is over nothing is given back; what
        was used beyond the guess counts now."""
        tally = self.tally
        if hold.tokens is not None:
            more = use.tokens - hold.tokens
            if self._is_open(hold):
                tally.count(0, more)
            elif more > 0:
                tally.open_window()
                tally.count(0, more)
        self._let_go(hold)
        if hold.picos is not None:
            tally.spent_picos += use.picos
            self._expect_more(hold, use)

    def release(self, hold: Hold, *, may_cost: bool = False) -> None:
        """The request was refused further on: as if it had never been. `may_cost`: or so it seems."""
        if self._is_open(hold):
            self.tally.count(-hold.requests, -(hold.tokens or 0))
        self._let_go(hold)
        if hold.picos is not None:
            self._expect_more(hold, Use(is_all=not may_cost))

    def free_seat(self, hold: Hold) -> Hold:
        """Its seat alone, ahead of the rest: its client is gone."""
        if hold.seats:
            self.tally.hold_more(self._edge, -hold.seats, 0)
        return replace(hold, seats=0)

    def _let_go(self, hold: Hold) -> None:
        if hold.seats or hold.picos:
            self.tally.hold_more(self._edge, -hold.seats, -(hold.picos or 0))

    def _is_open(self, hold: Hold) -> bool:
        return hold.window_start > 0 and hold.window_start == self.tally.window_start

    def _expect_more(self, hold: Hold, use: Use) -> None:
        if not use.is_all:
            self.tally.expect_more(hold.run, use.picos)

    # Tell

    def begin_alert(self) -> bool:
        """True once a period: the share of the budget that is told has been spent."""
        if self.tally.alerted or not self.standing.alert_is_due:
            return False
        self.tally.alerted = True
        return True
