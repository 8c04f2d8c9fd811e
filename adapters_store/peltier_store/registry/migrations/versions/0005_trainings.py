"""Files, trainings with their logs, and quotas of them"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    _create_files()
    _create_trainings()
    _create_events()
    with op.batch_alter_table("tenants", schema=None) as batch_op:
        batch_op.add_column(sa.Column("max_trainings", sa.BigInteger(), nullable=True))
        batch_op.add_column(sa.Column("max_training_rows", sa.BigInteger(), nullable=True))
        batch_op.add_column(sa.Column("max_training_minutes_per_day", sa.Double(), nullable=True))


def _create_files() -> None:
    op.create_table(
        "files",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("num_rows", sa.BigInteger(), nullable=False),
        sa.Column("is_inline", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.name"], name=op.f("fk_files_tenant_tenants")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_files")),
    )
    with op.batch_alter_table("files", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_files_digest"), ["digest"], unique=False)
        batch_op.create_index("ix_files_tenant_created_at", ["tenant", "created_at"], unique=False)


def _create_trainings() -> None:
    op.create_table(
        "trainings",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("train_file_id", sa.Text(), nullable=True),
        sa.Column("validation_file_id", sa.Text(), nullable=True),
        sa.Column("keep_examples", sa.Boolean(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(), nullable=True),
        sa.Column("finished_at", sa.DateTime(), nullable=True),
        sa.Column("wish", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("progress", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("preflight", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("metrics", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("report", sa.Text(), nullable=True),
        sa.Column("adapter", sa.Text(), nullable=True),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=True),
        sa.Column("lease_expires_at", sa.DateTime(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("checkpoint_digest", sa.Text(), nullable=True),
        sa.Column("checkpoint_bytes", sa.BigInteger(), nullable=False),
        sa.Column("artifact_digest", sa.Text(), nullable=True),
        sa.Column("artifact_bytes", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.name"], name=op.f("fk_trainings_tenant_tenants")),
        sa.ForeignKeyConstraint(["train_file_id"], ["files.id"], name=op.f("fk_trainings_train_file_id_files")),
        sa.ForeignKeyConstraint(
            ["validation_file_id"], ["files.id"], name=op.f("fk_trainings_validation_file_id_files")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trainings")),
    )
    with op.batch_alter_table("trainings", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_trainings_artifact_digest"), ["artifact_digest"], unique=False)
        batch_op.create_index(batch_op.f("ix_trainings_checkpoint_digest"), ["checkpoint_digest"], unique=False)
        batch_op.create_index(batch_op.f("ix_trainings_state"), ["state"], unique=False)
        batch_op.create_index("ix_trainings_tenant_created_at", ["tenant", "created_at"], unique=False)
        batch_op.create_index(batch_op.f("ix_trainings_train_file_id"), ["train_file_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_trainings_validation_file_id"), ["validation_file_id"], unique=False)


def _create_events() -> None:
    op.create_table(
        "training_events",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("training_id", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["training_id"],
            ["trainings.id"],
            name=op.f("fk_training_events_training_id_trainings"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_training_events")),
    )
    with op.batch_alter_table("training_events", schema=None) as batch_op:
        batch_op.create_index("ix_training_events_training_id", ["training_id", "id"], unique=False)
