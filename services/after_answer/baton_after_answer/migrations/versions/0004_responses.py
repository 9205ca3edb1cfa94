"""Responses: what is kept of /v1/responses."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "responses",
        sa.Column("tenant_id", sa.String(128), nullable=False),
        sa.Column("response_id", sa.String(64), nullable=False),
        sa.Column("previous_response_id", sa.String(64)),
        sa.Column("request_id", sa.String(32), nullable=False),
        sa.Column("run_id", sa.String(8), nullable=False),
        sa.Column("team", sa.String(128), nullable=False),
        sa.Column("key_id", sa.String(128), nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("input", sa.Text, nullable=False),
        sa.Column("output", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("written_at", sa.Double, nullable=False),
        sa.Column("deleted_at", sa.Double),
        sa.PrimaryKeyConstraint("tenant_id", "response_id"),
    )
    op.create_index("responses_by_time", "responses", ["created_at"])


def downgrade() -> None:
    op.drop_table("responses")
