"""Vectors of inputs"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    # Replicas of the release before record none.
    op.add_column("answers", sa.Column("vector", sa.LargeBinary(), nullable=True))
    op.create_index("ix_answers_version", "answers", ["tenant", "name", "version", "id"])
