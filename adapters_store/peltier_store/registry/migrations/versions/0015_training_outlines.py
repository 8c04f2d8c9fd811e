"""What a list of trainings shows of their requests"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"

_COLUMNS = ("task_type", "preset", "recipe")
_TRAININGS = sa.table(
    "trainings", sa.column("id", sa.Text()), sa.column("request", sa.JSON()), *(sa.column(name) for name in _COLUMNS)
)


def upgrade() -> None:
    for name in _COLUMNS:
        op.add_column("trainings", sa.Column(name, sa.Text(), nullable=True))
    connection = op.get_bind()
    # One at a time, because a request may be large, and not in SQL: PostgreSQL fails at any zero byte in a request.
    for training_id in connection.scalars(sa.select(_TRAININGS.c.id)).all():
        own = _TRAININGS.c.id == training_id
        request = connection.scalar(sa.select(_TRAININGS.c.request).where(own))
        shown = {name: _storable(request.get(name)) for name in _COLUMNS}
        connection.execute(sa.update(_TRAININGS).where(own).values(shown))


def _storable(text: str | None) -> str | None:
    """None for what names no task type, preset or recipe, and may be no text of the database."""
    return None if text is None or "\0" in text or not text.isascii() else text
