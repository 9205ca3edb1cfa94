"""The books with 100,000 rows of ledger: every question goes by an index, and none takes long unbounded."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine, Select, text

from baton_after_answer import books as books_module
from baton_after_answer.books import Books, BooksSlow
from baton_after_answer.statements import MAX_USAGE_ROWS, usage_statement
from baton_after_answer.usage_sums import Page, SumsAsked, sums_statement

NUM_ROWS = 100_000
DAY = 86_400.0
LAST = 1_796_000_000.0
"""The newest row's end; each other one ends 26 s before the next, so all of them are thirty days."""
_FILL = f"""
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {NUM_ROWS - 1})
INSERT INTO ledger (tenant_id, request_id, run_id, attempt, team, key_id, model, replica, prompt_tokens,
  cached_tokens, completion_tokens, outcome, finish_reason, error_code, stand_in, cost_picos,
  started_at, ended_at, written_at)
SELECT CASE WHEN i % 10 = 0 THEN 'rival' ELSE 'acme' END, '{"0" * 25}' || CAST(1000000 + i AS VARCHAR),
  '0a1b2c3d', 1, 'team' || CAST(i % 7 AS VARCHAR), 'key' || CAST(i % 300 AS VARCHAR),
  'model' || CAST(i % 4 AS VARCHAR), 'engine-1', 40, 10, 7, 'finished', 'stop', NULL, FALSE, 1000,
  {LAST} - 26.0 * i - 1, {LAST} - 26.0 * i, {LAST} FROM n
"""  # noqa: S608  # numbers of our own


@pytest.fixture
def full(engine: Engine) -> Engine:
    with engine.begin() as connection:
        connection.execute(text(_FILL))
        connection.exec_driver_sql("ANALYZE")
    return engine


def plan(engine: Engine, statement: Select[tuple[object, ...]]) -> str:
    sql = str(statement.compile(engine, compile_kwargs={"literal_binds": True}))
    explain = "EXPLAIN QUERY PLAN" if engine.dialect.name == "sqlite" else "EXPLAIN"
    with engine.connect() as connection:
        rows = connection.exec_driver_sql(f"{explain} {sql.replace('%', '%%')}")
        return "\n".join(str(row[-1]) for row in rows)


def test_every_question_goes_by_an_index(full: Engine) -> None:
    a_day = SumsAsked("acme", ("key", "model"), LAST - DAY)
    dialect = full.dialect.name
    assert "ledger_by_time" in plan(full, sums_statement(dialect, a_day, Page(LAST + 1)))
    newest = plan(full, usage_statement("acme", ()))
    assert "ledger_by_time" in newest
    assert "sort" not in newest.lower()
    assert "temp b-tree" not in newest.lower()
    of_requests = plan(full, usage_statement("acme", ["a" * 32, "b" * 32]))
    assert "ledger_pkey" in of_requests or "sqlite_autoindex_ledger_1" in of_requests


def test_the_pages_of_a_month_are_all_of_it_and_each_is_bounded(full: Engine) -> None:
    """Nine of ten rows are the tenant's; no key's day comes twice, and all of them add up to its rows."""
    books = Books(full)
    asked = SumsAsked("acme", ("key", "day"), 0.0)
    page: Page | None = Page(LAST + 1)
    num_rows, cost, sizes, seen = 0, 0, list[int](), set[tuple[str | None, str | None]]()
    while page:
        found, page = books.usage_sums(asked, page)
        sizes.append(len(found))
        seen |= {(one.key_id, one.day) for one in found}
        num_rows += sum(one.attempts for one in found)
        cost += sum(one.cost_picos for one in found)
    assert (num_rows, cost) == (90_000, 90_000_000)
    assert len(seen) == sum(sizes) > 8000
    assert set(sizes[:-1]) == {1000}
    assert len(books.usage("acme", ())) == MAX_USAGE_ROWS


def test_sums_that_take_too_long_are_given_up(full: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    books = Books(full)
    asked = SumsAsked("acme", ("key", "team", "model", "day"), 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(books_module, "SUMS_SECONDS", 0.002)
        with pytest.raises(BooksSlow):
            books.usage_sums(asked, Page(LAST + 1))
    assert len(books.usage_sums(asked, Page(LAST + 1))[0]) == 1000
