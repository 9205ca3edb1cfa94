"""What an account's budget has spent, as the ledger has it.

Owns which rows count: those of the period, but for requests that edges have yet to settle. How the books are
asked, and what becomes of the figure, is the caller's.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from baton_common.run_rows import AskBooks, rows_of_runs
from baton_contracts.limits import AccountState, BudgetPeriod, Run, period_name, period_start
from baton_contracts.queries import BooksQuery


@dataclass(frozen=True)
class Payer:
    """Whose rows they are: a key's, a team's or a model's."""

    by: Literal["key", "team", "model"]
    name: str
    tenant_ids: Collection[str]


async def spent_in_ledger(
    ask: AskBooks, payer: Payer, state: AccountState, period: BudgetPeriod, now: float
) -> int:
    """Pico-dollars that `state` should say it has spent. What requests under way cost is still to come; of
    late ones, what is not counted yet. Raises what `ask` raises."""
    since = period_start(period, now)
    late = state.late_in(period_name(period, now))
    names = {name for slot in state.slots.values() for name in slot.runs} | late.keys()
    held = [run for run in map(Run.named, names) if run]
    rows = await rows_of_runs(ask, held)
    while True:
        spent = sum([await _sum(ask, payer, tenant_id, since) for tenant_id in payer.tenant_ids])
        rows, before = await rows_of_runs(ask, held), rows
        if rows == before:  # none was stored around the sum, so it contains them all
            break
    wanted = [
        row
        for rows_of_run in rows.values()
        for row in rows_of_run
        if row.ended_at >= since and (payer.by != "model" or row.model == payer.name)
    ]
    return spent - sum(row.cost_picos or 0 for row in wanted) + sum(run.picos for run in late.values())


async def _sum(ask: AskBooks, payer: Payer, tenant_id: str, since: float) -> int:
    query = BooksQuery(
        kind="usage_sums",
        tenant_id=tenant_id,
        by=(payer.by,),
        since=since,
        key_id=payer.name if payer.by == "key" else None,
        team=payer.name if payer.by == "team" else None,
        model=payer.name if payer.by == "model" else None,
    )
    reply = await ask(query)
    return sum(each.cost_picos for each in reply.sums if payer.name in (each.key_id, each.team, each.model))
