"""The random ids of the last changes"""

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    changes = op.create_table(
        "changes",
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_changes")),
    )
    number = op.get_bind().execute(sa.text("SELECT number FROM revision")).scalar_one()
    op.bulk_insert(changes, [{"number": number, "id": secrets.token_hex(8)}])
