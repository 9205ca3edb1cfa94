"""What an edge has set aside of an account for requests to come: most are let in without a write. Pure.

It counts as used for everybody else and goes back as soon as nobody asks any more. How much of an account may
be set aside is account.py's, when it is done lane.py's.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from baton_contracts.limits import WINDOW_SECONDS, LimitRule
from baton_edge_api.limits.holds import Hold
from baton_edge_api.limits.wish import Wish

_AHEAD = 2
"""Times what was asked for lately: who asks faster comes to a write sooner."""


@dataclass(frozen=True)
class Spare:
    """Room for so many requests, of so many tokens together."""

    rule: LimitRule
    window_start: float
    num_requests: int
    num_tokens: int

    def let_in(self, wish: Wish, run: str, rule: LimitRule, now: float) -> tuple[Hold, Spare] | None:
        """The request's hold, and what is left. None: it is not enough, its window is over, or the rule is
        another one by now. Of a guess nothing is left out: where something is set aside there is room."""
        num_tokens = 0
        if rule.tokens_per_minute is not None:
            num_tokens = wish.num_prompt_tokens + wish.num_added_tokens + wish.num_output_tokens
        is_open = not self.window_start or abs(now - self.window_start) < WINDOW_SECONDS
        if not is_open or self.num_requests < 1 or self.num_tokens < num_tokens or rule != self.rule:
            return None
        left = Spare(self.rule, self.window_start, self.num_requests - 1, self.num_tokens - num_tokens)
        return self._hold_of(1, num_tokens, run), left

    @property
    def hold(self) -> Hold:
        """In the account: like a request's, in nobody's name."""
        return self._hold_of(self.num_requests, self.num_tokens)

    def _hold_of(self, num_requests: int, num_tokens: int, run: str = "") -> Hold:
        rule = self.rule
        counts_tokens = rule.tokens_per_minute is not None
        return Hold(
            window_start=self.window_start,
            requests=0 if rule.requests_per_minute is None else num_requests,
            tokens=num_tokens if counts_tokens else None,
            seats=0 if rule.concurrent is None else num_requests,
            run=run if counts_tokens else "",
        )


class Demand:
    """What was let in during the last `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._recent: deque[tuple[float, int]] = deque()

    def note(self, num_tokens: int, now: float) -> None:
        self._recent.append((now, num_tokens))
        self._forget(now)

    def ahead(self, now: float) -> tuple[int, int]:
        """Requests and tokens that may be wanted until the next write. One alone promises no other."""
        self._forget(now)
        if len(self._recent) < 2:
            return 0, 0
        return len(self._recent) * _AHEAD, sum(tokens for _, tokens in self._recent) * _AHEAD

    def clear(self) -> None:
        self._recent.clear()

    def _forget(self, now: float) -> None:
        while self._recent and not 0 <= now - self._recent[0][0] < self._seconds:
            self._recent.popleft()
