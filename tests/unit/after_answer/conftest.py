"""The database of the books: who asks for `engine` runs on SQLite, and on PostgreSQL where there is one."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.engine import URL, make_url

from baton_after_answer.database import migrate, open_engine
from tests.support.postgres_server import postgres_folder, running_postgres


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[URL]:
    """Of one server for all tests of this process; each test has a database of its own there."""
    if postgres_folder() is None:
        pytest.skip("no PostgreSQL on this machine")
    with running_postgres() as url:
        yield make_url(url).set(drivername="postgresql+psycopg")


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """An engine that is not asked for is not made."""
    return request.getfixturevalue(f"{request.param}_engine")


@pytest.fixture
def sqlite_engine(tmp_path: Path) -> Iterator[Engine]:
    yield from _migrated(URL.create("sqlite", database=str(tmp_path / "deep" / "books.sqlite")))


@pytest.fixture
def postgresql_engine(postgres_url: URL) -> Iterator[Engine]:
    name = f"books_{secrets.token_hex(6)}"
    server = open_engine(postgres_url)
    with server.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    server.dispose()
    yield from _migrated(postgres_url.set(database=name))


def _migrated(url: URL) -> Iterator[Engine]:
    engine = open_engine(url)
    migrate(engine)
    yield engine
    engine.dispose()
