"""The number of each replica's last report"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.create_table(
        "reporters",
        sa.Column("replica", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("reported_at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("replica", name=op.f("pk_reporters")),
    )
