"""What a list of trainings shows of their requests"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"

_COLUMNS = ("task_type", "preset", "recipe")
_FILLED = {
    "sqlite": "UPDATE trainings SET task_type = json_extract(request, '$.task_type'),"
    " preset = json_extract(request, '$.preset'), recipe = json_extract(request, '$.recipe')",
    "postgresql": "UPDATE trainings SET task_type = request->>'task_type',"
    " preset = request->>'preset', recipe = request->>'recipe'",
}


def upgrade() -> None:
    for name in _COLUMNS:
        op.add_column("trainings", sa.Column(name, sa.Text(), nullable=True))
    op.execute(_FILLED[op.get_bind().dialect.name])
