"""How an account stands under its rule: whether a request fits, why not, and what its client is told. Pure.

    requests, tokens:  used = settled + reserved in this window; remaining = limit − used
    seats:             sum over edges of requests under way
    money:             spent + held ≤ budget, where held is a sum over edges

Only looks: changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from baton_contracts.limits import WINDOW_SECONDS, Budget, LimitRule
from baton_edge_api.limits.tally import Tally

RefusalKind = Literal["requests", "tokens", "concurrent", "budget", "budget_held"]

ROOM = 4
_SEAT_SECONDS = 1.0
"""When a seat, or money that others hold, may be free again is nobody's knowledge."""


@dataclass(frozen=True)
class Refusal:
    kind: RefusalKind
    limit: int
    used: int
    wanted: int
    retry_after_seconds: float

    @property
    def can_never_fit(self) -> bool:
        return self.wanted > self.limit


@dataclass(frozen=True)
class View:
    """How an account stands, for headers. None: not limited."""

    limit_requests: int | None = None
    remaining_requests: int = 0
    limit_tokens: int | None = None
    remaining_tokens: int = 0
    reset_seconds: float = 0.0
    """Until the window ends and both are whole again; 0: no window is open."""
    spent_percent: int | None = None
    """Of the budget, if its alert is due."""


class Standing:
    def __init__(self, tally: Tally, rule: LimitRule) -> None:
        self._tally = tally
        self._rule = rule

    # Does it fit

    @property
    def tokens_left(self) -> int | None:
        """None: not limited."""
        limit = self._rule.tokens_per_minute
        return None if limit is None else limit - self._tally.tokens

    @property
    def picos_left(self) -> int | None:
        budget, tally = self._rule.budget, self._tally
        return None if budget is None else budget.picos - tally.spent_picos - tally.held_picos

    def refusal(self, num_tokens: int, picos: int) -> Refusal | None:
        """Of one request with so many tokens, that may cost so much. None: it fits."""
        rule, tally = self._rule, self._tally
        if rule.budget and (refusal := self._over_budget(rule.budget, picos)):
            return refusal
        reset = tally.reset_seconds or WINDOW_SECONDS
        requests, tokens, concurrent = rule.requests_per_minute, rule.tokens_per_minute, rule.concurrent
        if requests is not None and tally.requests + 1 > requests:
            return Refusal("requests", requests, tally.requests, 1, reset)
        if tokens is not None and tally.tokens + num_tokens > tokens:
            return Refusal("tokens", tokens, tally.tokens, num_tokens, reset)
        if concurrent is not None and tally.seats + 1 > concurrent:
            return Refusal("concurrent", concurrent, tally.seats, 1, _SEAT_SECONDS)
        return None

    def _over_budget(self, budget: Budget, picos: int) -> Refusal | None:
        """Without a price nothing is refused until the budget is spent."""
        spent, held = self._tally.spent_picos, self._tally.held_picos
        if spent >= budget.picos or spent + picos > budget.picos:
            return Refusal("budget", budget.picos, spent, picos, 0.0)
        if spent + held + picos > budget.picos:
            return Refusal("budget_held", budget.picos, spent + held, picos, _SEAT_SECONDS)
        return None

    @property
    def has_room(self) -> bool:
        """Not a quarter of anything that a settlement gives back is taken: one that is written a little later
        turns nobody away."""
        rule, tally = self._rule, self._tally
        if rule.concurrent is not None and tally.seats * ROOM > rule.concurrent:
            return False
        if rule.tokens_per_minute is not None and tally.tokens * ROOM > rule.tokens_per_minute:
            return False
        if budget := rule.budget:
            taken = tally.spent_picos + tally.held_picos
            return taken * ROOM * 100 <= budget.picos * budget.alert_percent
        return True

    # What is told

    @property
    def alert_is_due(self) -> bool:
        """The share of the budget that is told has been spent."""
        budget = self._rule.budget
        return budget is not None and self._tally.spent_picos * 100 >= budget.picos * budget.alert_percent

    @property
    def view(self) -> View:
        rule, tally = self._rule, self._tally
        percent = None
        if rule.budget and self.alert_is_due:
            percent = tally.spent_picos * 100 // rule.budget.picos if rule.budget.picos else 100
        return View(
            limit_requests=rule.requests_per_minute,
            remaining_requests=max(0, (rule.requests_per_minute or 0) - tally.requests),
            limit_tokens=rule.tokens_per_minute,
            remaining_tokens=max(0, (rule.tokens_per_minute or 0) - tally.tokens),
            reset_seconds=tally.reset_seconds,
            spent_percent=percent,
        )
