"""Changes of one account, carried out on a copy: what came of each, and what is then written. Pure.

Owns what this edge's slot says. Knows nothing of when it is written, or whether that works.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from baton_contracts.limits import AccountState, Slot
from baton_edge_api.limits.account import Account
from baton_edge_api.limits.holds import Hold
from baton_edge_api.limits.spare import Spare
from baton_edge_api.limits.standing import Refusal, View

Result = Hold | Refusal


@dataclass(frozen=True)
class Outcome:
    result: Result
    view: View
    alert: bool = False
    """This change was the one that spent the share of the budget that is told."""


@dataclass(eq=False)
class Change:
    """`apply` gets the account and what the request holds in it (an empty Hold before it holds any), and
    says what it holds then; None: nothing any more."""

    grant: int
    apply: Callable[[Account, Hold], Result | None]
    takes: bool
    is_seen_elsewhere: bool = False
    """What it is about was read beside the lane: it is applied to the account as it is now."""
    done: asyncio.Future[Outcome] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Applied:
    """A batch, carried out on a copy."""

    def __init__(self, account: Account, holds: dict[int, Hold], edge: str) -> None:
        self.account = account
        self.holds = holds
        self.outcomes: list[tuple[Change, Outcome]] = []
        self.refused_any = False
        self.spare: Spare | None = None
        self._edge = edge

    def add(self, change: Change) -> None:
        result = change.apply(self.account, self.holds.get(change.grant) or Hold())
        if isinstance(result, Hold):
            self.holds[change.grant] = result
        elif result is None:
            self.holds.pop(change.grant, None)
        else:
            self.refused_any = True
        alert = self.account.begin_alert()
        self.outcomes.append((change, Outcome(result or Hold(), self.account.standing.view, alert)))

    def set_aside(self, num_requests: int, num_tokens: int) -> None:
        """Behind all that is asked for now."""
        if num_requests:
            self.spare = self.account.set_aside(num_requests, num_tokens)

    @property
    def state(self) -> AccountState:
        """With the runs of our slot, if it has or had anything in it."""
        state = self.account.tally.state
        window = state.window_start
        runs = {
            hold.run: (hold.tokens or 0) if hold.window_start == window else 0
            for hold in self.holds.values()
            if hold.run
        }
        if not runs and self._edge not in state.slots:
            return state
        return self._with_own(state, runs=runs, window_start=window if runs else 0.0)

    def sealed(self, seq: int) -> AccountState:
        """As it is written: our slot with its number."""
        return self._with_own(self.state, seq=seq)

    def _with_own(self, state: AccountState, **changes: object) -> AccountState:
        own = (state.slots.get(self._edge) or Slot()).model_copy(update=changes)
        return state.model_copy(update={"slots": state.slots | {self._edge: own}})
