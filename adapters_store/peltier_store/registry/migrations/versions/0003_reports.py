"""Reports of trainings, each with its version"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "reports",
        sa.Column("adapter_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("report", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["adapter_id", "number"],
            ["versions.adapter_id", "versions.number"],
            name=op.f("fk_reports_adapter_id_versions"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("adapter_id", "number", name=op.f("pk_reports")),
    )
