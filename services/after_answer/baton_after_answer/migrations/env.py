"""Alembic's entry: runs inside the connection and transaction that `database.migrate` opened."""

from __future__ import annotations

from alembic import context

from baton_after_answer.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
