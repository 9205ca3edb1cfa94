"""Opening the database: the engine with its settings, and the migrations that bring it up to date.

Knows SQLite's and PostgreSQL's manners; knows nothing of what the tables mean.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL

_MIGRATION_LOCK = 0x0BA70
"""Any number that all of Baton's processes agree on: PostgreSQL's advisory lock around migrations."""
_SQLITE_BUSY_MILLISECONDS = 3000
_SQLITE_STEPS_BETWEEN_LOOKS = 100_000


def open_engine(url: URL) -> Engine:
    """Connects lazily: the database need not be there yet."""
    if url.get_backend_name() == "sqlite":
        return _open_sqlite(url)
    return create_engine(
        url, pool_size=2, max_overflow=0, pool_pre_ping=True, connect_args={"connect_timeout": 3}
    )


def _open_sqlite(url: URL) -> Engine:
    if url.database and url.database != ":memory:":
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, connect_args={"check_same_thread": False})

    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, _record: Any) -> None:
        # The driver's own idea of transactions leaves DDL outside them: BEGIN is ours (below).
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout={_SQLITE_BUSY_MILLISECONDS}")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")  # a ledger: what was acknowledged survives power loss

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        # A transaction that will write says so at once: upgrading a read lock can fail without waiting.
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


@contextmanager
def at_most(connection: Connection, seconds: float) -> Generator[None]:
    """A statement that takes longer fails with a DBAPIError."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL statement_timeout = {int(seconds * 1000)}"))
        yield
        return
    driver: Any = connection.connection.driver_connection
    until = time.monotonic() + seconds
    driver.set_progress_handler(lambda: time.monotonic() > until, _SQLITE_STEPS_BETWEEN_LOOKS)
    try:
        yield
    finally:
        driver.set_progress_handler(None, 0)


def migrate(engine: Engine) -> None:
    """To the newest schema. Processes that start together wait for each other."""
    logging.getLogger("alembic").setLevel(logging.WARNING)
    with engine.connect().execution_options(writes=True) as connection, connection.begin():
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
