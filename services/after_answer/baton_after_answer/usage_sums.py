"""The ledger in sums: by key, team, model and day. The statement, and what its rows become."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Integer, RowMapping, Select, cast, distinct, func, select

from baton_after_answer.schema import ledger
from baton_contracts.queries import UsageBy, UsageSum

MAX_SUMS = 1000
_DAY_SECONDS = 86_400


def sums_statement(
    dialect: str, tenant_id: str, by: Sequence[UsageBy], since: float, until: float
) -> Select[tuple[object, ...]]:
    """Dearest first, or by day. `since` ≤ ended < `until`, Unix seconds."""
    columns = _columns(dialect)
    groups = [columns[name].label(name) for name in dict.fromkeys(by)]
    cost = func.coalesce(func.sum(ledger.c.cost_picos), 0)
    sums = (
        func.count(distinct(ledger.c.request_id + ledger.c.run_id)).label("requests"),
        func.count().label("attempts"),
        func.coalesce(func.sum(ledger.c.prompt_tokens), 0).label("prompt_tokens"),
        func.coalesce(func.sum(ledger.c.cached_tokens), 0).label("cached_tokens"),
        func.coalesce(func.sum(ledger.c.completion_tokens), 0).label("completion_tokens"),
        cost.label("cost_picos"),
    )
    within = (ledger.c.tenant_id == tenant_id, ledger.c.ended_at >= since, ledger.c.ended_at < until)
    order = [columns["day"], cost.desc()] if "day" in by else [cost.desc()]
    return select(*groups, *sums).where(*within).group_by(*groups).order_by(*order).limit(MAX_SUMS)


def usage_sum(row: RowMapping) -> UsageSum:
    day = row.get("day")
    return UsageSum(
        key_id=row.get("key"),
        team=row.get("team"),
        model=row.get("model"),
        day=None if day is None else datetime.fromtimestamp(int(day) * _DAY_SECONDS, UTC).date().isoformat(),
        requests=int(row["requests"]),
        attempts=int(row["attempts"]),
        prompt_tokens=int(row["prompt_tokens"]),
        cached_tokens=int(row["cached_tokens"]),
        completion_tokens=int(row["completion_tokens"]),
        cost_picos=int(row["cost_picos"]),
    )


def _columns(dialect: str) -> dict[UsageBy, ColumnElement[Any]]:
    days = ledger.c.ended_at / _DAY_SECONDS
    day = func.floor(days) if dialect == "postgresql" else cast(days, Integer)  # SQLite's cast cuts off
    return {"key": ledger.c.key_id, "team": ledger.c.team, "model": ledger.c.model, "day": day}
