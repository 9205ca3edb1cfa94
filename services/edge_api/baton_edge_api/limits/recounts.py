"""Budgets of which not all may be counted: raised to what the ledger says, by whichever edge uses them.

    an entry that begins anew, a budget set in the middle of its period,      the account says so, and when
    late rows that did not come in time or were too many to be named     ──▶  the ledger is to be asked

It is asked again each time the doubt is twice as old, for a day. A figure counts only where nobody has
written the account meanwhile, so once. Knows nothing of how that is done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Protocol

from baton_common.errors import RequestFailed
from baton_common.spending import Payer
from baton_contracts.identifiers import name_of_token
from baton_contracts.limits import (
    AccountState,
    BudgetPeriod,
    is_model,
    key_party,
    name_of_party,
    period_name,
)
from baton_edge_api.limits.accounts import Accounts
from baton_edge_api.limits.figures import LimitFigures
from baton_edge_api.limits.rules import RuleBook

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0


class Ledger(Protocol):
    async def spent(self, payer: Payer, state: AccountState, period: BudgetPeriod, now: float) -> int:
        """Raises RequestFailed while the books can't say."""
        ...


class Tenants(Protocol):
    """Whose keys there are."""

    def tenant_of_key(self, key_id: str) -> str | None: ...

    def tenant_ids(self) -> Collection[str]: ...


class Recounts:
    def __init__(
        self,
        accounts: Accounts,
        ledger: Ledger,
        rules: RuleBook,
        tenants: Tenants,
        figures: LimitFigures,
        *,
        stands_for: Callable[[str], tuple[str, ...]],
        wall: Callable[[], float],
    ) -> None:
        """`stands_for` names the models that may answer to a name."""
        self._accounts = accounts
        self._ledger = ledger
        self._rules = rules
        self._tenants = tenants
        self._figures = figures
        self._stands_for = stands_for
        self._wall = wall

    async def run(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                for party in self._accounts.doubted(self._wall()):
                    await self._recount(party)
            except RequestFailed as failed:
                log.warning("budgets can't be recounted now: %s", failed.error.message)

    async def _recount(self, party: str) -> None:
        budget, payer, now = self._rules.rule(party).budget, self._payer(party), self._wall()
        if budget is None or payer is None:
            return
        state = await self._accounts.read(party)
        is_due = state.doubt is not None and state.doubt.look_at <= now
        if not is_due or state.period != period_name(budget.period, now):
            return
        spent = await self._ledger.spent(payer, state, budget.period, now)
        outcome = await self._accounts.raise_spent(party, state, spent)
        if outcome and spent > state.spent_picos:
            log.info("%s: %d picodollars were counted, %d are in the ledger", party, state.spent_picos, spent)
        if outcome and outcome.alert:
            self._figures.alert(party, outcome.view)

    def _payer(self, party: str) -> Payer | None:
        """None: the ledger can't tell whose rows they are. It names models that answered, not what was
        asked for."""
        name = name_of_party(party)
        if party.startswith(key_party("")):
            tenant_id = self._tenants.tenant_of_key(name)
            return Payer("key", name, (tenant_id,)) if tenant_id else None
        if is_model(party):
            is_alone = self._stands_for(name) == (name,)
            return Payer("model", name, self._tenants.tenant_ids()) if is_alone else None
        return Payer("team", name, (name_of_token(party.split(".")[1]),))
