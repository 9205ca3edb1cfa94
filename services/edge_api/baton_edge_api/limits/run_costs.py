"""What ledger rows of a run come to for one account. Pure.

Knows which rows a party pays for, and which is a run's last one. Knows nothing of how accounts are written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from baton_contracts.limits import LimitRule, Run, is_model, name_of_party, period_start
from baton_contracts.records import UsageRecord
from baton_edge_api.limits.holds import Use

_LAST = ("finished", "cancelled", "cache_hit")
"""What these say ends a run; behind an `error` or `migrated` another attempt may follow."""


class RunCosts:
    def __init__(
        self,
        *,
        rule: Callable[[str], LimitRule],
        stands_for: Callable[[str], tuple[str, ...]],
        wall: Callable[[], float],
    ) -> None:
        """`rule` is that of a party; `stands_for` names the models that may answer to a name."""
        self._rule = rule
        self._stands_for = stands_for
        self._wall = wall

    def use(self, party: str, run: Run | None, rows: Collection[UsageRecord]) -> Use:
        """Of what `party` pays for; and of its money, what was spent in this period."""
        is_all = run is None or is_told(run, rows)
        if is_model(party):
            name = name_of_party(party)
            rows = [row for row in rows if row.model == name or row.model in self._stands_for(name)]
        budget = self._rule(party).budget
        since = period_start(budget.period, self._wall()) if budget else 0.0
        return Use(
            tokens=sum(row.usage.prompt_tokens + row.usage.completion_tokens for row in rows),
            picos=sum(row.cost_picos or 0 for row in rows if row.ended_at >= since),
            is_all=is_all,
        )


def is_told(run: Run, rows: Collection[UsageRecord]) -> bool:
    """Each of its requests has its last row, from the gateway itself: a stand-in's figures may change yet."""
    told = {row.request_id for row in rows if row.outcome in _LAST and not row.stand_in}
    return told.issuperset(run.request_ids)
