"""The books: rows in, answers out. Everything here blocks: it runs in a database thread, sums in another.

Owns the transactions and what of their rows fits into an answer. Knows nothing of NATS.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from sqlalchemy import Connection, Engine, RowMapping, Select, Table, delete, update
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from baton_after_answer.database import at_most
from baton_after_answer.records import Row
from baton_after_answer.schema import ledger, rejected, responses, turns
from baton_after_answer.statements import (
    chain_statement,
    conversation_statement,
    insert_once,
    is_response,
    response_statement,
    usage_statement,
)
from baton_after_answer.usage_sums import MAX_SUMS, Page, SumsAsked, sums_statement, usage_sum
from baton_contracts.envelope import Tenant
from baton_contracts.frames import Usage
from baton_contracts.prompt import ToolCall
from baton_contracts.queries import StoredResponse, StoredTurn, UsageSum
from baton_contracts.records import StoredMessage, UsageRecord

SUMS_SECONDS = 8.0
"""Of one page of sums: whoever asked waits no longer."""
MAX_CONVERSATION_CHARACTERS = 200_000
"""A reply is one message of the bus, 1 MiB at most: the newest turns that fit are the answer."""


class BooksAway(Exception):
    """The database can't be reached or can't take more now. Nothing was written; try again later."""


class BooksSlow(Exception):
    """Adding up took longer than SUMS_SECONDS."""


class RowRefused(Exception):
    """The database will never take one of these rows. Nothing was written."""


@dataclass(frozen=True)
class Entry:
    """Rows of one transaction."""

    ledger: list[Row] = field(default_factory=list[Row])
    turns: list[Row] = field(default_factory=list[Row])
    responses: list[Row] = field(default_factory=list[Row])
    rejected: list[Row] = field(default_factory=list[Row])


InParts = Callable[[Sequence[Row]], Iterable[Sequence[Row]]]


class Books:
    def __init__(self, engine: Engine, in_parts: InParts = lambda rows: (rows,)) -> None:
        """`in_parts`: so many rows are written at a time, all in one transaction."""
        self._engine = engine
        self._in_parts = in_parts

    def write(self, entry: Entry) -> None:
        """One transaction, committed when this returns. Raises BooksAway or RowRefused."""
        batches: tuple[tuple[Table, Sequence[Row]], ...] = (
            (ledger, entry.ledger),
            (turns, entry.turns),
            (responses, entry.responses),
            (rejected, entry.rejected),
        )
        with self._writing() as connection:
            for table, rows in batches:
                for part in self._in_parts(rows) if rows else ():
                    connection.execute(insert_once(self._engine.dialect.name, table), part)

    @contextmanager
    def _writing(self) -> Generator[Connection, None, None]:
        try:
            with self._engine.connect().execution_options(writes=True) as connection, connection.begin():
                yield connection
        except (OperationalError, InterfaceError) as error:
            raise BooksAway(cause_of(error)) from None
        except DBAPIError as error:
            raise (BooksAway if error.connection_invalidated else RowRefused)(cause_of(error)) from None
        except OverflowError as error:  # SQLite's driver, of a number that no column holds
            raise RowRefused(str(error)) from None

    def conversation(self, tenant_id: str, conversation_id: str) -> tuple[StoredTurn, ...]:
        """Oldest first; if it is too long for one answer, its newest part."""
        found: list[StoredTurn] = []
        room = MAX_CONVERSATION_CHARACTERS
        for row in self._rows(conversation_statement(tenant_id, conversation_id)):
            turn = _stored_turn(row)
            room -= _num_characters(turn)
            if room < 0 and found:
                break
            found.append(turn)
        return tuple(reversed(found))

    def usage(
        self, tenant_id: str, request_ids: Sequence[str], since: float = 0.0, until: float | None = None
    ) -> tuple[UsageRecord, ...]:
        """The rows of each of these requests by attempt; without any, the tenant's newest ones of a time."""
        statement = usage_statement(tenant_id, request_ids, since, until)
        return tuple(_usage_record(row) for row in self._rows(statement))

    def usage_sums(self, asked: SumsAsked, page: Page) -> tuple[tuple[UsageSum, ...], Page | None]:
        """With the next page, if there is one. Raises BooksSlow."""
        began = time.monotonic()
        statement = sums_statement(self._engine.dialect.name, asked, page)
        try:
            with self._engine.connect() as connection, at_most(connection, SUMS_SECONDS):
                rows = connection.execute(statement).mappings().all()
        except DBAPIError as error:
            is_slow = time.monotonic() - began >= SUMS_SECONDS
            raise (BooksSlow if is_slow else BooksAway)(cause_of(error)) from None
        found = tuple(usage_sum(row) for row in rows[:MAX_SUMS])
        return found, page.next() if len(rows) > MAX_SUMS else None

    def response(self, tenant_id: str, response_id: str) -> tuple[StoredResponse, ...]:
        found = self._rows(response_statement(tenant_id, response_id))
        return tuple(_stored_response(row, body=row["body"]) for row in found)

    def response_chain(self, tenant_id: str, response_id: str) -> tuple[StoredResponse, ...]:
        """Newest first, as many as fit into one answer and at least one. It ends before one that is gone."""
        found: list[StoredResponse] = []
        room = MAX_CONVERSATION_CHARACTERS
        for row in self._rows(chain_statement(tenant_id, response_id)):
            room -= len(row["input"]) + len(row["output"])
            if room < 0 and found:
                break
            found.append(_stored_response(row))
        return tuple(found)

    def delete_response(self, tenant_id: str, response_id: str, now: float) -> tuple[StoredResponse, ...]:
        """What it was. Its row stays, with nothing in it."""
        found = self.response(tenant_id, response_id)
        blank = {"input": "[]", "output": "[]", "body": "{}", "deleted_at": now}
        if found:
            with self._writing() as connection:
                connection.execute(
                    update(responses).where(*is_response(tenant_id, response_id)).values(blank)
                )
        return found

    def forget_responses(self, before: float) -> int:
        """Those made before this time go, row and key. Returns how many."""
        with self._writing() as connection:
            return connection.execute(delete(responses).where(responses.c.created_at < before)).rowcount

    def _rows(self, statement: Select[tuple[object, ...]]) -> Sequence[RowMapping]:
        try:
            with self._engine.connect() as connection:
                return connection.execute(statement).mappings().all()
        except DBAPIError as error:
            raise BooksAway(cause_of(error)) from None


def _num_characters(turn: StoredTurn) -> int:
    calls = [*turn.tool_calls, *(call for said in turn.asked for call in said.tool_calls)]
    said = sum(len(said.content) for said in turn.asked)
    return len(turn.answer) + said + sum(len(call.name) + len(call.arguments) for call in calls)


def cause_of(error: DBAPIError) -> str:
    """The driver's words on one line, without the statement and its parameters: they hold people's text."""
    words = str(error.orig).strip().splitlines() or [type(error).__name__]
    return f"{type(error.orig).__name__}: {words[0]}"


def _stored_turn(row: RowMapping) -> StoredTurn:
    return StoredTurn(
        request_id=row["request_id"],
        model=row["model"],
        asked=tuple(StoredMessage(**said) for said in row["asked"]),
        answer=row["answer"],
        tool_calls=tuple(ToolCall(**call) for call in row["tool_calls"] or ()),
        cut_short=row["cut_short"],
        created_at=row["created_at"],
    )


def _stored_response(row: RowMapping, body: str = "") -> StoredResponse:
    return StoredResponse(
        response_id=row["response_id"],
        previous_response_id=row["previous_response_id"],
        status=row["status"],
        input=row["input"],
        output=row["output"],
        body=body,
    )


def _usage_record(row: RowMapping) -> UsageRecord:
    return UsageRecord(
        request_id=row["request_id"],
        run_id=row["run_id"],
        attempt=row["attempt"],
        tenant=Tenant(tenant_id=row["tenant_id"], team=row["team"], key_id=row["key_id"]),
        model=row["model"],
        replica=row["replica"],
        usage=Usage(
            prompt_tokens=row["prompt_tokens"],
            cached_tokens=row["cached_tokens"],
            completion_tokens=row["completion_tokens"],
        ),
        outcome=row["outcome"],
        finish_reason=row["finish_reason"],
        error_code=row["error_code"],
        stand_in=row["stand_in"],
        cost_picos=row["cost_picos"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
    )
