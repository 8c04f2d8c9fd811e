"""Guarded changes of aliases, and the answers that they are judged by"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "rollouts",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("adapter_id", sa.Integer(), nullable=False),
        sa.Column("alias", sa.Text(), nullable=False),
        sa.Column("incumbent", sa.Integer(), nullable=False),
        sa.Column("candidate", sa.Integer(), nullable=False),
        sa.Column("share", sa.Double(), nullable=True),
        sa.Column("guard", sa.JSON(), nullable=False),
        sa.Column("counts", sa.JSON(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(), nullable=False),
        sa.Column("started_by", sa.Text(), nullable=False),
        sa.Column("ends_at", sa.DateTime(), nullable=False),
        sa.Column("ended_at", sa.DateTime(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("numbers", sa.JSON(none_as_null=True), nullable=True),
        sa.ForeignKeyConstraint(["adapter_id"], ["adapters.id"], name=op.f("fk_rollouts_adapter_id_adapters")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rollouts")),
    )
    running = sa.text("state = 'running'")
    op.create_index("ix_rollouts_alias", "rollouts", ["adapter_id", "alias", "started_at"])
    op.create_index(
        "uq_rollouts_running",
        "rollouts",
        ["adapter_id", "alias"],
        unique=True,
        sqlite_where=running,
        postgresql_where=running,
    )
    _create_answers()


def _create_answers() -> None:
    op.create_table(
        "answers",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("row", sa.Integer(), nullable=False),
        sa.Column("rollout_id", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("shadow", sa.Text(), nullable=True),
        sa.Column("text_hash", sa.Text(), nullable=False),
        sa.Column("answered_at", sa.DateTime(), nullable=False),
        sa.Column("was_right", sa.Boolean(), nullable=True),
        sa.ForeignKeyConstraint(["rollout_id"], ["rollouts.id"], name=op.f("fk_answers_rollout_id_rollouts")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_answers")),
        sa.UniqueConstraint("tenant", "request_id", "row", name=op.f("uq_answers_tenant")),
    )
    op.create_index(op.f("ix_answers_answered_at"), "answers", ["answered_at"])
    op.create_index("ix_answers_tenant_id", "answers", ["tenant", "id"])
