"""The first schema. A new database has no steps before it: it gets the tables as they are now"""

revision = "0018"
down_revision = None


def upgrade() -> None:
    pass
