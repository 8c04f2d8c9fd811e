"""The time of trainings in each hour, in place of that of deleted trainings"""

from collections import defaultdict
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

_SPENT = sa.text(
    "SELECT tenant, started_at, seconds FROM trainings WHERE started_at > :since"
    " UNION ALL SELECT tenant, started_at, seconds FROM deleted_trainings WHERE started_at > :since"
).columns(started_at=sa.DateTime())


def upgrade() -> None:
    table = op.create_table(
        "training_time",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("hour", sa.DateTime(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.name"], name=op.f("fk_training_time_tenant_tenants")),
        sa.PrimaryKeyConstraint("tenant", "hour", name=op.f("pk_training_time")),
    )
    # Trainings of the last 24 hours count as before, in the hour in which they began.
    seconds: dict[tuple[str, datetime], float] = defaultdict(float)
    since = datetime.now(UTC).replace(tzinfo=None) - timedelta(days=1)
    spent = _SPENT.bindparams(sa.bindparam("since", since, sa.DateTime()))
    for tenant, started_at, of_one in op.get_bind().execute(spent):
        seconds[tenant, started_at.replace(minute=0, second=0, microsecond=0)] += of_one
    op.bulk_insert(table, [{"tenant": key[0], "hour": key[1], "seconds": total} for key, total in seconds.items()])
    # No release has used the table, so no server of one can miss it.
    op.drop_table("deleted_trainings")
