"""The books: ledger, turns, rejected."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "ledger",
        sa.Column("tenant_id", sa.String(128), nullable=False),
        sa.Column("request_id", sa.String(32), nullable=False),
        sa.Column("run_id", sa.String(8), nullable=False),
        sa.Column("attempt", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("team", sa.String(128), nullable=False),
        sa.Column("key_id", sa.String(128), nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("replica", sa.Text, nullable=False),
        sa.Column("prompt_tokens", sa.Integer, nullable=False),
        sa.Column("cached_tokens", sa.Integer, nullable=False),
        sa.Column("completion_tokens", sa.Integer, nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("finish_reason", sa.String(32)),
        sa.Column("error_code", sa.String(64)),
        sa.Column("started_at", sa.Double, nullable=False),
        sa.Column("ended_at", sa.Double, nullable=False),
        sa.Column("written_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "request_id", "run_id", "attempt"),
    )
    op.create_index("ledger_by_time", "ledger", ["tenant_id", "ended_at"])
    op.create_table(
        "turns",
        sa.Column("tenant_id", sa.String(128), nullable=False),
        sa.Column("conversation_id", sa.String(64), nullable=False),
        sa.Column("request_id", sa.String(32), nullable=False),
        sa.Column("run_id", sa.String(8), nullable=False),
        sa.Column("team", sa.String(128), nullable=False),
        sa.Column("key_id", sa.String(128), nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("asked", sa.JSON, nullable=False),
        sa.Column("answer", sa.Text, nullable=False),
        sa.Column("cut_short", sa.Boolean, nullable=False),
        sa.Column("finish_reason", sa.String(32)),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("written_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "conversation_id", "request_id", "run_id"),
    )
    op.create_index("turns_by_time", "turns", ["tenant_id", "conversation_id", "created_at"])
    op.create_table(
        "rejected",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("written_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("digest"),
    )


def downgrade() -> None:
    op.drop_table("rejected")
    op.drop_table("turns")
    op.drop_table("ledger")
