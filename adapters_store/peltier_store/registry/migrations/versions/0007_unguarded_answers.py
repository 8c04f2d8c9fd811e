"""Answers outside of guarded changes"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    with op.batch_alter_table("answers") as batch:
        # Replicas of the release before name the rollout, and so its adapter.
        batch.add_column(sa.Column("name", sa.Text(), nullable=True))
        batch.alter_column("rollout_id", existing_type=sa.Text(), nullable=True)
