"""What each ledger row costs, in pico-dollars; NULL for rows from before there were prices."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("ledger", sa.Column("cost_picos", sa.BigInteger))


def downgrade() -> None:
    op.drop_column("ledger", "cost_picos")
