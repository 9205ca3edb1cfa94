"""The books, on SQLite and PostgreSQL: written once, read by tenant, migrated to what the code expects."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, func, select
from sqlalchemy.dialects import postgresql, sqlite

from baton_after_answer import books as books_module
from baton_after_answer import usage_sums
from baton_after_answer.books import MAX_CONVERSATION_CHARACTERS, Books, BooksAway, Entry, RowRefused
from baton_after_answer.database import migrate
from baton_after_answer.records import ledger_row, rejected_row, response_row, turn_row
from baton_after_answer.schema import ledger, metadata, turns
from baton_after_answer.statements import conversation_statement, insert_once, usage_statement
from baton_after_answer.usage_sums import Page, SumsAsked
from baton_contracts.frames import Usage
from baton_contracts.prompt import ToolCall
from baton_contracts.queries import UsageBy, UsageSum
from baton_contracts.records import StoredMessage
from tests.support.after_records import ACME, RIVAL, conversation_record, response_record, usage_record

RID = "ab" * 16


def count(engine: Engine, table: object) -> int:
    with engine.connect() as connection:
        return connection.execute(select(func.count()).select_from(table)).scalar_one()  # type: ignore[arg-type]


def test_the_migrations_make_what_the_schema_says(engine: Engine) -> None:
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_migrating_again_changes_nothing(engine: Engine) -> None:
    Books(engine).write(Entry(ledger=[ledger_row(usage_record(), 1.0)]))
    migrate(engine)
    assert count(engine, ledger) == 1


def test_sqlite_is_opened_as_a_ledger_needs_it(sqlite_engine: Engine) -> None:
    with sqlite_engine.connect() as connection:
        answers = [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "busy_timeout")
        ]
    assert answers == ["wal", 2, 3000]


def test_the_same_records_twice_are_one_row_each(engine: Engine) -> None:
    books = Books(engine)
    entry = Entry(
        ledger=[ledger_row(usage_record(request_id=RID), 1.0)],
        turns=[turn_row(conversation_record(request_id=RID), 1.0)],
        responses=[response_row(response_record(), 1.0)],
        rejected=[rejected_row("s", b"junk", "why", 1.0)],
    )
    books.write(entry)
    books.write(entry)
    twice = Entry(entry.ledger * 2, entry.turns * 2, entry.responses * 2, entry.rejected * 2)
    books.write(twice)
    assert [count(engine, table) for table in metadata.sorted_tables] == [1, 1, 1, 1]


@pytest.mark.parametrize("order", [(True, False), (False, True), (True, True, False, True)])
def test_the_gateways_own_row_takes_the_place_of_a_stand_in(engine: Engine, order: tuple[bool, ...]) -> None:
    books = Books(engine)
    for stand_in in order:
        record = usage_record(
            request_id=RID, replica="told by a stand-in" if stand_in else "told by the gateway"
        )
        row = ledger_row(record.model_copy(update={"stand_in": stand_in}), written_at=1.0)
        books.write(Entry(ledger=[row]))
    [row] = books.usage(ACME.tenant_id, [RID])
    assert (row.replica, row.stand_in) == ("told by the gateway", False)


def test_attempts_and_runs_of_one_request_are_rows_of_their_own(engine: Engine) -> None:
    books = Books(engine)
    records = [
        usage_record(request_id=RID, attempt=2, outcome="finished"),
        usage_record(request_id=RID, attempt=1, outcome="error", finish_reason=None, error_code="stop_lost"),
        usage_record(request_id=RID, run_id="ffffffff"),
    ]
    books.write(Entry(ledger=[ledger_row(record, 1.0) for record in records]))
    found = books.usage("acme", [RID])
    assert [(row.run_id, row.attempt, row.outcome) for row in found] == [
        ("0a1b2c3d", 1, "error"),
        ("0a1b2c3d", 2, "finished"),
        ("ffffffff", 1, "finished"),
    ]
    assert found[0] == records[1]


def test_no_tenant_sees_the_books_of_another(engine: Engine) -> None:
    books = Books(engine)
    mine = conversation_record(request_id=RID, tenant=ACME, answer="mine")
    theirs = conversation_record(request_id=RID, tenant=RIVAL, answer="theirs")
    books.write(
        Entry(
            ledger=[ledger_row(usage_record(request_id=RID, tenant=tenant), 1.0) for tenant in (ACME, RIVAL)],
            turns=[turn_row(mine, 1.0), turn_row(theirs, 1.0)],
        )
    )
    assert [turn.answer for turn in books.conversation("acme", "conv_1")] == ["mine"]
    assert [turn.answer for turn in books.conversation("rival", "conv_1")] == ["theirs"]
    assert [row.tenant.tenant_id for row in books.usage("rival", [RID])] == ["rival"]
    assert books.conversation("nobody", "conv_1") == ()


def test_a_conversation_is_told_from_its_beginning(engine: Engine) -> None:
    books = Books(engine)
    for second in (3.0, 1.0, 2.0):
        record = conversation_record(created_at=second, answer=f"at {second}", cut_short=second == 2.0)
        books.write(Entry(turns=[turn_row(record, 9.0)]))
    found = books.conversation("acme", "conv_1")
    assert [(turn.answer, turn.cut_short) for turn in found] == [
        ("at 1.0", False),
        ("at 2.0", True),
        ("at 3.0", False),
    ]
    assert found[0].asked[0].content == "What is a KV cache?"


def test_of_a_conversation_too_long_for_a_message_the_newest_part_is_told(engine: Engine) -> None:
    books = Books(engine)
    long = "x" * (MAX_CONVERSATION_CHARACTERS // 2)
    records = [conversation_record(created_at=float(second), answer=long) for second in range(4)]
    books.write(Entry(turns=[turn_row(record, 9.0) for record in records]))
    assert [turn.created_at for turn in books.conversation("acme", "conv_1")] == [3.0]


def test_tool_calls_and_their_results_are_given_back_as_they_were(engine: Engine) -> None:
    call = ToolCall(call_id="c1", name="add", arguments='{"a": 1}')
    other = ToolCall(call_id="c2", name="add", arguments='{"a": "\0"}')
    result = StoredMessage(role="tool", content="3", tool_call_id="c1")
    books = Books(engine)
    first = conversation_record(answer="", tool_calls=(call,), created_at=1.0)
    asked = (StoredMessage(role="assistant", content="", name="Bo", tool_calls=(call, other)), result)
    second = conversation_record(asked=asked, created_at=2.0)
    books.write(Entry(turns=[turn_row(record, 3.0) for record in (first, second)]))
    found = books.conversation("acme", "conv_1")
    assert [turn.tool_calls for turn in found] == [(call,), ()]
    cleaned = other.model_copy(update={"arguments": '{"a": "\ufffd"}'})
    assert found[1].asked[0].tool_calls == (call, cleaned)
    assert found[1].asked[0].name == "Bo"
    assert found[1].asked[1] == result


def test_long_arguments_count_too(engine: Engine) -> None:
    books = Books(engine)
    call = ToolCall(call_id="c", name="f", arguments="x" * (MAX_CONVERSATION_CHARACTERS // 2))
    records = [conversation_record(created_at=float(n), tool_calls=(call,)) for n in range(3)]
    books.write(Entry(turns=[turn_row(record, 3.0) for record in records]))
    assert [turn.created_at for turn in books.conversation("acme", "conv_1")] == [2.0]


def test_a_nul_character_does_not_cost_the_answer(engine: Engine) -> None:
    books = Books(engine)
    books.write(Entry(turns=[turn_row(conversation_record(answer="a\0b"), 1.0)]))
    assert books.conversation("acme", "conv_1")[0].answer == "a�b"


def test_a_locked_database_is_away_and_nothing_is_written(sqlite_engine: Engine, tmp_path: Path) -> None:
    books = Books(sqlite_engine)
    with sqlite_engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA busy_timeout=1")
    other = sqlite3.connect(tmp_path / "deep" / "books.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(BooksAway, match="database is locked"):
        books.write(Entry(ledger=[ledger_row(usage_record(), 1.0)]))
    other.execute("ROLLBACK")
    other.close()
    assert count(sqlite_engine, ledger) == 0


def test_one_row_that_can_not_be_stored_refuses_its_whole_transaction(engine: Engine) -> None:
    books = Books(engine)
    bad = ledger_row(usage_record(), 1.0) | {"model": None}
    with pytest.raises(RowRefused) as caught:
        books.write(Entry(ledger=[ledger_row(usage_record(), 1.0), bad]))
    assert all(word in str(caught.value) for word in ("ledger", "model"))
    assert count(engine, ledger) == 0


def test_a_number_that_no_column_holds_is_refused_too(engine: Engine) -> None:
    books = Books(engine)
    bad = usage_record(usage=Usage(prompt_tokens=2**70))
    with pytest.raises(RowRefused):
        books.write(Entry(ledger=[ledger_row(usage_record(), 1.0), ledger_row(bad, 1.0)]))
    assert count(engine, ledger) == 0
    books.write(Entry(ledger=[ledger_row(usage_record(), 1.0)]))
    assert count(engine, ledger) == 1


@pytest.mark.parametrize("dialect", [sqlite.dialect(), postgresql.dialect()], ids=["sqlite", "postgresql"])
def test_the_statements_are_right_in_both_dialects(dialect: object) -> None:
    name = dialect.name  # type: ignore[attr-defined]
    insert = str(insert_once(name, ledger).compile(dialect=dialect))  # type: ignore[arg-type]
    assert insert.startswith("INSERT INTO ledger (tenant_id, request_id, run_id, attempt,")
    assert "ON CONFLICT (tenant_id, request_id, run_id, attempt) DO UPDATE SET team = excluded.team" in insert
    others = str(insert_once(name, turns).compile(dialect=dialect))  # type: ignore[arg-type]
    assert others.endswith("ON CONFLICT DO NOTHING")
    for statement in (conversation_statement("acme", "c"), usage_statement("acme", None)):
        assert "tenant_id = " in str(statement.compile(dialect=dialect))  # type: ignore[arg-type]
    assert "conversation_id = " in str(conversation_statement("acme", "c").compile(dialect=dialect))  # type: ignore[arg-type]
    assert turns.primary_key.columns.keys()[0] == ledger.primary_key.columns.keys()[0] == "tenant_id"


DAY = 86_400.0


def test_usage_is_summed_by_what_is_told_apart(engine: Engine) -> None:
    books = Books(engine)
    records = [
        usage_record(ended_at=10 * DAY),
        usage_record(ended_at=11 * DAY - 0.5, model="qwen2.5-coder-0.5b", cost_picos=40_000_000),
        usage_record(ended_at=11 * DAY, attempt=1, request_id=RID, cost_picos=None),
        usage_record(ended_at=11 * DAY, attempt=2, request_id=RID),
        usage_record(ended_at=11 * DAY, tenant=RIVAL),
        usage_record(ended_at=12 * DAY),
    ]
    books.write(Entry(ledger=[ledger_row(record, 1.0) for record in records]))

    def sums(*by: UsageBy, since: float, until: float, tenant_id: str = "acme") -> tuple[UsageSum, ...]:
        return books.usage_sums(SumsAsked(tenant_id, by, since), Page(until))[0]

    (total,) = sums(since=10 * DAY, until=12 * DAY)
    assert (total.requests, total.attempts, total.completion_tokens) == (3, 4, 28)
    assert (total.prompt_tokens, total.cached_tokens, total.cost_picos) == (168, 64, 41_920_000)
    by_day = sums("day", since=10 * DAY, until=12 * DAY)
    assert [(one.day, one.requests, one.cost_picos) for one in by_day] == [
        ("1970-01-11", 2, 40_960_000),
        ("1970-01-12", 1, 960_000),
    ]
    by_model = sums("key", "model", since=0, until=13 * DAY)
    assert [(one.key_id, one.model, one.attempts) for one in by_model] == [
        ("key_acme", "qwen2.5-coder-0.5b", 1),
        ("key_acme", "smollm2-135m", 4),
    ]
    assert sums("team", since=0, until=13 * DAY, tenant_id="nobody") == ()


def test_sums_come_in_pages_that_tell_of_one_moment(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_sums, "MAX_SUMS", 2)
    monkeypatch.setattr(books_module, "MAX_SUMS", 2)
    books = Books(engine)
    costs = {"key_b": 5, "key_a": 5, "key_d": 9, "key_c": 1, "key_e": 7}
    for key_id, cost in costs.items():
        record = usage_record(tenant=ACME.model_copy(update={"key_id": key_id}), cost_picos=cost)
        books.write(Entry(ledger=[ledger_row(record, 1.0)]))
    asked = SumsAsked("acme", ("key",), 0.0)
    pages: list[list[str | None]] = []
    page: Page | None = Page(2000.0)
    while page:
        found, page = books.usage_sums(asked, Page.parse(str(page)))
        pages.append([one.key_id for one in found])
        books.write(Entry(ledger=[ledger_row(usage_record(ended_at=2000.0), 1.0)]))
    assert pages == [["key_d", "key_e"], ["key_a", "key_b"], ["key_c"]]


def test_sums_of_one_key_team_or_model(engine: Engine) -> None:
    books = Books(engine)
    for key_id, team in (("k1", "t1"), ("k2", "t1"), ("k2", "t2")):
        tenant = ACME.model_copy(update={"key_id": key_id, "team": team})
        books.write(Entry(ledger=[ledger_row(usage_record(tenant=tenant, cost_picos=3), 1.0)]))

    def cost(**only: str) -> int:
        ((one,), _) = books.usage_sums(SumsAsked("acme", (), 0.0, **only), Page(2000.0))
        return one.cost_picos

    assert (cost(), cost(key_id="k2"), cost(team="t1"), cost(key_id="k2", team="t2")) == (9, 6, 6, 3)
    assert (cost(model="smollm2-135m"), cost(model="another")) == (9, 0)


@pytest.mark.parametrize("text", ["", "5", "x-1", "-1-5", "0-nan", "0-inf", "99999999999-5"])
def test_what_no_answer_has_said_is_no_page(text: str) -> None:
    with pytest.raises(ValueError):  # of int and float, too
        Page.parse(text)
