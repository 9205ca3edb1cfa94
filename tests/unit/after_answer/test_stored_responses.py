"""Responses in the books: found by tenant and id, read as a chain, deleted for good, forgotten in time."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import Engine, select

from baton_after_answer import books as books_module
from baton_after_answer import statements
from baton_after_answer.books import Books, BooksAway, Entry
from baton_after_answer.records import parse_record, response_row
from baton_after_answer.retention import LOOK_SECONDS, forget_old
from baton_after_answer.schema import responses
from baton_common.clock import Clock
from baton_contracts.records import ResponseRecord
from tests.support.after_records import RIVAL, response_id, response_record, subject_of


def written(engine: Engine, *records: ResponseRecord) -> Books:
    books = Books(engine)
    books.write(Entry(responses=[response_row(record, 1.0) for record in records]))
    return books


def chain_of(length: int, **changes: object) -> list[ResponseRecord]:
    return [response_record(n, n - 1 if n else None, **changes) for n in range(length)]


def ids(books: Books, number: int, tenant_id: str = "acme") -> list[str]:
    return [found.response_id for found in books.response_chain(tenant_id, response_id(number))]


def test_a_record_comes_back_as_it_was_sent() -> None:
    record = response_record(3, 2)
    assert parse_record(subject_of(record), record.encode()) == record


def test_a_response_is_given_back_whole_and_to_its_tenant_only(engine: Engine) -> None:
    record = response_record(1, 0)
    books = written(engine, record)
    [found] = books.response("acme", record.response_id)
    assert (found.previous_response_id, found.status) == (response_id(0), "completed")
    assert (found.input, found.output, found.body) == (record.input, record.output, record.body)
    assert books.response("rival", record.response_id) == ()
    assert ids(books, 1, "rival") == []


def test_a_chain_is_told_newest_first_and_never_leaves_its_tenant(engine: Engine) -> None:
    stranger = response_record(1, 0, tenant=RIVAL)
    books = written(engine, *chain_of(3), stranger)
    assert ids(books, 2) == [response_id(2), response_id(1), response_id(0)]
    assert ids(books, 1, "rival") == [response_id(1)], "the one before it is another tenant's"


def test_a_long_chain_comes_a_page_at_a_time(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "MAX_CHAIN", 3)
    books = written(engine, *chain_of(5))
    page = books.response_chain("acme", response_id(4))
    assert [found.response_id for found in page] == [response_id(4), response_id(3), response_id(2)]
    assert page[-1].previous_response_id == response_id(1)
    assert ids(books, 1) == [response_id(1), response_id(0)]


def test_a_page_holds_what_fits_into_a_message_and_at_least_one(engine: Engine) -> None:
    half = "x" * (books_module.MAX_CONVERSATION_CHARACTERS // 2 - 100)
    books = written(engine, *chain_of(4, input=half))
    assert len(ids(books, 3)) == 2
    books = written(engine, response_record(9, 3, input=half * 5))
    assert ids(books, 9) == [response_id(9)]


def test_a_deleted_response_stays_deleted_when_its_record_comes_again(engine: Engine) -> None:
    records = chain_of(3)
    books = written(engine, *records)
    [deleted] = books.delete_response("acme", response_id(1), 5.0)
    assert deleted.output == records[1].output
    books = written(engine, *records)
    assert books.response("acme", response_id(1)) == ()
    assert books.delete_response("acme", response_id(1), 6.0) == ()
    assert ids(books, 2) == [response_id(2)], "the chain ends before it"
    with engine.connect() as connection:
        statement = select(responses.c["input", "output", "body", "deleted_at"])
        kept = connection.execute(statement.where(responses.c.response_id == response_id(1))).one()
    assert kept == ("[]", "[]", "{}", 5.0)


def test_another_tenant_deletes_nothing(engine: Engine) -> None:
    books = written(engine, response_record())
    assert books.delete_response("rival", response_id(0), 5.0) == ()
    assert len(books.response("acme", response_id(0))) == 1


async def test_old_responses_go_and_a_database_that_is_away_is_tried_again(engine: Engine) -> None:
    books = written(engine, *chain_of(3))
    asked: list[float] = []
    slept: list[float] = []

    async def forget(before: float) -> int:
        asked.append(before)
        if len(asked) == 1:
            raise BooksAway("locked")
        return books.forget_responses(before)

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            raise asyncio.CancelledError

    then = Clock(wall=lambda: 2 * 86400 + 1001.5)
    with pytest.raises(asyncio.CancelledError):
        await forget_old(forget, days=2, clock=then, sleep=sleep)
    assert asked == [1001.5, 1001.5]
    assert slept == [LOOK_SECONDS, LOOK_SECONDS]
    assert ids(books, 2) == [response_id(2)]
