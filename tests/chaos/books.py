"""The books of a system of one's own, read beside its services: all rows and turns, however many."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

_ROWS = """
    SELECT request_id, run_id, attempt, outcome, error_code, stand_in, prompt_tokens, completion_tokens
    FROM ledger
"""
_COSTS = "SELECT key_id, COALESCE(SUM(cost_picos), 0) FROM ledger GROUP BY key_id"


@dataclass(frozen=True)
class Row:
    request_id: str
    run_id: str
    attempt: int
    outcome: str
    error_code: str | None
    stand_in: bool
    prompt_tokens: int
    completion_tokens: int

    @property
    def ends_its_run(self) -> bool:
        return self.outcome in ("finished", "cancelled", "cache_hit")


Rows = Mapping[str, list[Row]]
"""By request id."""


@dataclass(frozen=True)
class Books:
    rows: Rows = field(default_factory=dict[str, list[Row]])
    num_turns: Mapping[str, int] = field(default_factory=dict[str, int])
    """By request id: how often its answer is in a conversation."""
    costs: Mapping[str, int] = field(default_factory=dict[str, int])
    """By key id, in pico-dollars."""
    rejected: tuple[str, ...] = ()
    """Why a record could not be booked, of each such record."""


def books_of(home: Path) -> Books:
    with closing(sqlite3.connect(f"file:{home / 'books.sqlite'}?mode=ro", uri=True, timeout=10)) as books:
        rows: dict[str, list[Row]] = defaultdict(list)
        for name, run_id, attempt, outcome, code, stand_in, *tokens in books.execute(_ROWS):
            rows[name].append(Row(name, run_id, attempt, outcome, code, bool(stand_in), *tokens))
        turns = Counter(str(name) for (name,) in books.execute("SELECT request_id FROM turns"))
        costs = {str(key): int(picos) for key, picos in books.execute(_COSTS)}
        rejected = tuple(str(why) for (why,) in books.execute("SELECT reason FROM rejected"))
    return Books(dict(rows), turns, costs, rejected)


def outcomes(rows: Rows) -> Counter[str]:
    return Counter(row.outcome for of_request in rows.values() for row in of_request)


def num_stand_ins(rows: Rows) -> int:
    return sum(row.stand_in for of_request in rows.values() for row in of_request)
