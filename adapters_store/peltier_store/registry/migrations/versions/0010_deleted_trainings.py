"""The time that deleted trainings took"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    # Replicas of the release before record none.
    op.create_table(
        "deleted_trainings",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.name"], name=op.f("fk_deleted_trainings_tenant_tenants")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deleted_trainings")),
    )
    op.create_index("ix_deleted_trainings_tenant_started_at", "deleted_trainings", ["tenant", "started_at"])
