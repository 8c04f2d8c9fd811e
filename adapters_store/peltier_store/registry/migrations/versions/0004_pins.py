"""Pins of adapters, and a quota of them"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("tenants", sa.Column("max_pinned_adapters", sa.BigInteger(), nullable=True))
    op.add_column("adapters", sa.Column("pinned_tier", sa.Text(), nullable=True))
    op.add_column("adapters", sa.Column("pinned_at", sa.DateTime(), nullable=True))
    op.add_column("adapters", sa.Column("pinned_by", sa.Text(), nullable=True))
