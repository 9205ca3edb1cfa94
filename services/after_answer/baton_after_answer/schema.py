"""The tables, as SQLAlchemy sees them. `migrations/` makes them; a test holds the two together.

Tenant is part of every key, so no query can cross it by accident. Times are Unix seconds.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    false,
)

metadata = MetaData()

ledger = Table(
    "ledger",
    metadata,
    Column("tenant_id", String(128), primary_key=True),
    Column("request_id", String(32), primary_key=True),
    Column("run_id", String(8), primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("team", String(128), nullable=False),
    Column("key_id", String(128), nullable=False),
    Column("model", Text, nullable=False),
    Column("replica", Text, nullable=False),
    Column("prompt_tokens", Integer, nullable=False),
    Column("cached_tokens", Integer, nullable=False),
    Column("completion_tokens", Integer, nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("finish_reason", String(32)),
    Column("error_code", String(64)),
    Column("stand_in", Boolean, nullable=False, server_default=false()),
    Column("cost_picos", BigInteger),
    Column("started_at", Double, nullable=False),
    Column("ended_at", Double, nullable=False),
    Column("written_at", Double, nullable=False),
    Index("ledger_by_time", "tenant_id", "ended_at"),
)
"""One row for each engine attempt or cache hit: what was used, by whom, on what. `stand_in`: an engine worker
stored it for a gateway that was lost; the gateway's own word takes its place. `cost_picos`: pico-dollars."""

turns = Table(
    "turns",
    metadata,
    Column("tenant_id", String(128), primary_key=True),
    Column("conversation_id", String(64), primary_key=True),
    Column("request_id", String(32), primary_key=True),
    Column("run_id", String(8), primary_key=True),
    Column("team", String(128), nullable=False),
    Column("key_id", String(128), nullable=False),
    Column("model", Text, nullable=False),
    Column("asked", JSON, nullable=False),
    Column("answer", Text, nullable=False),
    Column("tool_calls", JSON(none_as_null=True)),
    Column("cut_short", Boolean, nullable=False),
    Column("finish_reason", String(32)),
    Column("created_at", Double, nullable=False),
    Column("written_at", Double, nullable=False),
    Index("turns_by_time", "tenant_id", "conversation_id", "created_at"),
)
"""One row for each exchange of a conversation: what was new in the request, and the answer, with its
tool calls (NULL where it has none)."""

responses = Table(
    "responses",
    metadata,
    Column("tenant_id", String(128), primary_key=True),
    Column("response_id", String(64), primary_key=True),
    Column("previous_response_id", String(64)),
    Column("request_id", String(32), nullable=False),
    Column("run_id", String(8), nullable=False),
    Column("team", String(128), nullable=False),
    Column("key_id", String(128), nullable=False),
    Column("model", Text, nullable=False),
    Column("status", String(16), nullable=False),
    Column("input", Text, nullable=False),
    Column("output", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("written_at", Double, nullable=False),
    Column("deleted_at", Double),
    Index("responses_by_time", "created_at"),
)
"""One row for each stored response; JSON as text, which only the edge reads. A deleted one has none left, but
keeps its key: the record may be delivered once more."""

rejected = Table(
    "rejected",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("subject", Text, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("reason", Text, nullable=False),
    Column("written_at", Double, nullable=False),
)
"""Messages that are no record, kept for a person to look at. `digest`: SHA-256 of subject and payload."""
