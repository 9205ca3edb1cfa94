"""The ledger of a system of one's own, read beside its services: all rows, however many."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

_QUERY = """
    SELECT request_id, run_id, attempt, outcome, error_code, stand_in, prompt_tokens, completion_tokens
    FROM ledger
"""


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


Rows = Mapping[str, list[Row]]
"""By request id."""


def rows_of(home: Path) -> Rows:
    with closing(sqlite3.connect(f"file:{home / 'books.sqlite'}?mode=ro", uri=True, timeout=10)) as books:
        found: dict[str, list[Row]] = defaultdict(list)
        for line in books.execute(_QUERY):
            row = Row(*line[:5], bool(line[5]), *line[6:])
            found[row.request_id].append(row)
    return found


def outcomes(rows: Rows) -> Counter[str]:
    return Counter(row.outcome for of_request in rows.values() for row in of_request)


def num_stand_ins(rows: Rows) -> int:
    return sum(row.stand_in for of_request in rows.values() for row in of_request)
