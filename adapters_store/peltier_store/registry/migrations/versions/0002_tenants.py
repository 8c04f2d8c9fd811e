"""Tenants, keys, aliases, deletion with a grace period, the audit log, and the claims that collecting blobs respects"""

import secrets
from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

# SQLite numbers rows by itself only where the key is a plain INTEGER, which there has 64 bits.
BIG_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    create_revision()
    create_tenants()
    create_keys()
    alter_adapters()
    alter_versions()
    create_aliases()
    create_audit()
    create_claims()


def create_revision() -> None:
    revisions = op.create_table(
        "revision",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("registry_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_revision")),
    )
    op.bulk_insert(revisions, [{"id": 1, "number": 1, "registry_id": secrets.token_hex(16)}])


def create_tenants() -> None:
    tenants = op.create_table(
        "tenants",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("requests_per_second", sa.Double(), nullable=True),
        sa.Column("tokens_per_second", sa.Double(), nullable=True),
        sa.Column("max_concurrent_requests", sa.BigInteger(), nullable=True),
        sa.Column("max_stored_bytes", sa.BigInteger(), nullable=True),
        sa.Column("max_adapters", sa.BigInteger(), nullable=True),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_tenants")),
    )
    op.create_index(op.f("ix_tenants_revision"), "tenants", ["revision"])
    adapters = sa.table("adapters", sa.column("tenant"))
    owners = set(op.get_bind().execute(sa.select(adapters.c.tenant).distinct()).scalars())
    now = datetime.now(UTC).replace(tzinfo=None)
    rows = [{"name": name, "created_at": now, "revision": 1, "weight": 1.0} for name in sorted(owners | {"default"})]
    op.bulk_insert(tenants, rows)


def create_keys() -> None:
    op.create_table(
        "keys",
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.DateTime(), nullable=True),
        sa.Column("revoked_at", sa.DateTime(), nullable=True),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.name"], name=op.f("fk_keys_tenant_tenants")),
        sa.PrimaryKeyConstraint("prefix", name=op.f("pk_keys")),
    )
    op.create_index(op.f("ix_keys_tenant"), "keys", ["tenant"])
    op.create_index(op.f("ix_keys_revision"), "keys", ["revision"])


def alter_adapters() -> None:
    with op.batch_alter_table("adapters") as batch:
        batch.add_column(sa.Column("is_public", sa.Boolean(), nullable=False, server_default=sa.false()))
        batch.add_column(sa.Column("revision", sa.BigInteger(), nullable=False, server_default="1"))
        batch.create_foreign_key(op.f("fk_adapters_tenant_tenants"), "tenants", ["tenant"], ["name"])
        batch.create_index(op.f("ix_adapters_revision"), ["revision"])


def alter_versions() -> None:
    with op.batch_alter_table("versions") as batch:
        batch.add_column(sa.Column("created_by", sa.Text(), nullable=False, server_default=""))
        batch.add_column(sa.Column("deprecated_at", sa.DateTime(), nullable=True))
        batch.add_column(sa.Column("deprecation", sa.Text(), nullable=True))
        batch.add_column(sa.Column("deleted_at", sa.DateTime(), nullable=True))
        batch.add_column(sa.Column("revision", sa.BigInteger(), nullable=False, server_default="1"))
        batch.drop_constraint(op.f("uq_versions_adapter_id"), type_="unique")
        batch.create_index(op.f("ix_versions_digest"), ["digest"])
    create_partial_index("uq_versions_live", "versions", ["adapter_id", "digest"], "deleted_at IS NULL")


def create_aliases() -> None:
    op.create_table(
        "aliases",
        sa.Column("id", BIG_KEY, nullable=False),
        sa.Column("adapter_id", sa.Integer(), nullable=False),
        sa.Column("alias", sa.Text(), nullable=False),
        sa.Column("split", sa.JSON(), nullable=True),
        sa.Column("previous_id", BIG_KEY, nullable=True),
        sa.Column("is_current", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["adapter_id"], ["adapters.id"], name=op.f("fk_aliases_adapter_id_adapters")),
        sa.ForeignKeyConstraint(["previous_id"], ["aliases.id"], name=op.f("fk_aliases_previous_id_aliases")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_aliases")),
    )
    op.create_index("ix_aliases_history", "aliases", ["adapter_id", "alias", "id"])
    create_partial_index("uq_aliases_current", "aliases", ["adapter_id", "alias"], "is_current")


def create_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("id", BIG_KEY, nullable=False),
        sa.Column("at", sa.DateTime(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    op.create_index(op.f("ix_audit_tenant"), "audit", ["tenant"])


def create_claims() -> None:
    op.create_table(
        "reservations",
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("token", name=op.f("pk_reservations")),
    )
    op.create_index(op.f("ix_reservations_digest"), "reservations", ["digest"])
    op.create_table(
        "collections",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_collections")),
    )


def create_partial_index(name: str, table: str, columns: list[str], condition: str) -> None:
    where = sa.text(condition)
    op.create_index(name, table, columns, unique=True, sqlite_where=where, postgresql_where=where)
