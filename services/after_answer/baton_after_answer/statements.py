"""What the books ask their database, and how they add to it. Pure: statements in, none run.

Each row has a natural key, so writing it again changes nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from sqlalchemy import ColumnElement, Select, Table, literal, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import Insert

from baton_after_answer.schema import ledger, responses, turns

MAX_USAGE_ROWS = 500
MAX_TURNS = 500
MAX_CHAIN = 64
"""Responses of one page of a chain."""


@functools.cache
def insert_once(dialect: str, table: Table) -> Insert:
    """INSERT that leaves a row with the same key as it is, unless that is a stand-in and this is not. Made
    once: the making takes as long as the writing of sixty rows."""
    insert = postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)
    if table is not ledger:
        return insert.on_conflict_do_nothing()
    new = insert.excluded
    return insert.on_conflict_do_update(
        index_elements=list(table.primary_key),
        set_={column.name: new[column.name] for column in table.columns if not column.primary_key},
        where=ledger.c.stand_in & ~new.stand_in,
    )


def conversation_statement(tenant_id: str, conversation_id: str) -> Select[tuple[object, ...]]:
    newest_first = (turns.c.created_at.desc(), turns.c.request_id.desc(), turns.c.run_id.desc())
    return (
        select(turns)
        .where(turns.c.tenant_id == tenant_id, turns.c.conversation_id == conversation_id)
        .order_by(*newest_first)
        .limit(MAX_TURNS)
    )


def usage_statement(
    tenant_id: str, request_ids: Sequence[str], since: float = 0.0, until: float | None = None
) -> Select[tuple[object, ...]]:
    statement = select(ledger).where(ledger.c.tenant_id == tenant_id)
    if request_ids:
        by_attempt = (ledger.c.request_id, ledger.c.run_id, ledger.c.attempt)
        return statement.where(ledger.c.request_id.in_(request_ids)).order_by(*by_attempt)
    if since:
        statement = statement.where(ledger.c.ended_at >= since)
    if until is not None:
        statement = statement.where(ledger.c.ended_at < until)
    return statement.order_by(ledger.c.ended_at.desc()).limit(MAX_USAGE_ROWS)


def response_statement(tenant_id: str, response_id: str) -> Select[tuple[object, ...]]:
    return select(responses).where(*is_response(tenant_id, response_id))


def chain_statement(tenant_id: str, response_id: str) -> Select[tuple[object, ...]]:
    """A response and those before it, each found by its key."""
    columns = (
        responses.c.response_id,
        responses.c.previous_response_id,
        responses.c.status,
        responses.c.input,
        responses.c.output,
    )
    newest = select(*columns, literal(0).label("depth")).where(*is_response(tenant_id, response_id))
    chain = newest.cte("chain", recursive=True)
    earlier = select(*columns, chain.c.depth + 1).where(
        responses.c.tenant_id == tenant_id,
        responses.c.response_id == chain.c.previous_response_id,
        responses.c.deleted_at.is_(None),
        chain.c.depth + 1 < MAX_CHAIN,
    )
    chain = chain.union_all(earlier)
    return select(chain).order_by(chain.c.depth)


def is_response(tenant_id: str, response_id: str) -> tuple[ColumnElement[bool], ...]:
    return (
        responses.c.tenant_id == tenant_id,
        responses.c.response_id == response_id,
        responses.c.deleted_at.is_(None),
    )
