"""The ledger in sums: by key, team, model and day. The statement, and what its rows become.

Sums come in pages. A page says where it begins and up to which moment it adds up, so that what ends later
moves no page. A row that is stored late, of an answer that ended before, may still come in between.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Integer, RowMapping, Select, cast, distinct, func, select

from baton_after_answer.schema import ledger
from baton_contracts.queries import UsageBy, UsageSum

MAX_SUMS = 1000
"""Of one page."""
_MAX_OFFSET = 10**9
_DAY_SECONDS = 86_400


@dataclass(frozen=True)
class Page:
    until: float
    """Unix seconds."""
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.offset}-{self.until!r}"

    @classmethod
    def parse(cls, text: str) -> Page:
        """Raises ValueError for what no answer has said."""
        offset, _, until = text.partition("-")
        page = cls(float(until), int(offset))
        if not (math.isfinite(page.until) and 0 <= page.offset <= _MAX_OFFSET):
            raise ValueError(text)
        return page

    def next(self) -> Page:
        return Page(self.until, self.offset + MAX_SUMS)


@dataclass(frozen=True)
class SumsAsked:
    tenant_id: str
    by: Sequence[UsageBy]
    since: float
    """Unix seconds; the end of the time is the page's."""
    key_id: str | None = None
    team: str | None = None
    model: str | None = None


def sums_statement(dialect: str, asked: SumsAsked, page: Page) -> Select[tuple[object, ...]]:
    """Dearest first, or by day. `since` ≤ ended < `until`. One row more than a page has, if there is one."""
    columns = _columns(dialect)
    groups = [columns[name].label(name) for name in dict.fromkeys(asked.by)]
    cost = func.coalesce(func.sum(ledger.c.cost_picos), 0)
    sums = (
        func.count(distinct(ledger.c.request_id + ledger.c.run_id)).label("requests"),
        func.count().label("attempts"),
        func.coalesce(func.sum(ledger.c.prompt_tokens), 0).label("prompt_tokens"),
        func.coalesce(func.sum(ledger.c.cached_tokens), 0).label("cached_tokens"),
        func.coalesce(func.sum(ledger.c.completion_tokens), 0).label("completion_tokens"),
        cost.label("cost_picos"),
    )
    within = [
        ledger.c.tenant_id == asked.tenant_id,
        ledger.c.ended_at >= asked.since,
        ledger.c.ended_at < page.until,
    ]
    only = ((ledger.c.key_id, asked.key_id), (ledger.c.team, asked.team), (ledger.c.model, asked.model))
    within += [column == wanted for column, wanted in only if wanted is not None]
    by_day = [group for group in groups if group.name == "day"]
    statement = select(*groups, *sums).where(*within).group_by(*groups)
    return statement.order_by(*by_day, cost.desc(), *groups).limit(MAX_SUMS + 1).offset(page.offset)


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
