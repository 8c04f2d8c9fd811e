"""What Alembic runs: a new schema or migrations, in one transaction that no other process can interleave with."""

from typing import Literal

from alembic import context
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, make_url

from peltier_store.registry.schema import (
    create_tables,
    is_empty,
    lock_schema,
    migrate,
    refuse_broken_references,
    refuse_unknown_schema,
)
from peltier_store.registry.tables import Base, UtcDateTime


def run_migrations(connection: Connection) -> None:
    lock_schema(connection)
    scripts = ScriptDirectory.from_config(context.config)
    refuse_unknown_schema(connection, scripts)
    context.configure(
        connection=connection, target_metadata=Base.metadata, render_as_batch=True, render_item=render_type
    )
    with context.begin_transaction():
        if is_empty(connection):
            create_tables(connection)
            context.get_context().stamp(scripts, "head")
        context.run_migrations()
    refuse_broken_references(connection)


def render_type(kind: str, item: object, _context: object) -> str | Literal[False]:
    # A migration names no type of ours, so that it still runs when that type has changed.
    return "sa.DateTime()" if kind == "type" and isinstance(item, UtcDateTime) else False


url = context.config.attributes.get("url") or make_url(context.config.get_main_option("sqlalchemy.url", ""))
migrate(url, run_migrations)
