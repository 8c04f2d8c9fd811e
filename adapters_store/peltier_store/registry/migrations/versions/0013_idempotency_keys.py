"""The keys of requests that may be repeated, and the bytes of the requests of trainings"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

_COUNTED = {
    "sqlite": "UPDATE trainings SET request_bytes = length(CAST(request AS BLOB))",
    "postgresql": "UPDATE trainings SET request_bytes = octet_length(request::text)",
}


def upgrade() -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.name"], name=op.f("fk_idempotency_keys_tenant_tenants")),
        sa.PrimaryKeyConstraint("tenant", "key", name=op.f("pk_idempotency_keys")),
    )
    op.create_index(op.f("ix_idempotency_keys_created_at"), "idempotency_keys", ["created_at"])
    op.add_column("trainings", sa.Column("request_bytes", sa.BigInteger(), nullable=False, server_default="0"))
    op.execute(_COUNTED[op.get_bind().dialect.name])
