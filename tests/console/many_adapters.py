"""Many adapters of one tenant, written directly: to publish them would take minutes."""

import json
from datetime import UTC, datetime
from pathlib import Path

from peltier_adapters.artifact.manifest import read_header
from peltier_store.location import StoreLocation
from peltier_store.registry.database import Access, create_engines, database_url
from peltier_store.registry.extensions.registry import Registry
from peltier_store.registry.tables import AdapterRow, RevisionRow, TenantRow, VersionRow
from sqlalchemy import Connection, insert, update

_REVISION = 2


def name_of(number: int) -> str:
    """The name of the adapter of this number."""
    return f"task-{number:05}"


async def fill(store: Path, tenant: str, count: int, artifact: bytes) -> None:
    """Makes a registry in the folder `store` with `tenant` and `count` adapters of it. All have the manifest of
    `artifact`, and none has bytes.
    """
    url = str(StoreLocation.of(store).registry)
    await (await Registry.open(url)).close()
    at, engines = datetime.now(UTC), create_engines(database_url(url))
    adapters = [
        {"id": number, "tenant": tenant, "name": name_of(number), "last_number": 1, "is_public": False,
         "revision": _REVISION}
        for number in range(1, count + 1)
    ]  # fmt: skip
    manifest, _ = read_header(artifact)
    version = {
        "number": 1,
        "size_bytes": len(artifact),
        "preset": manifest.preset,
        "manifest": json.dumps(manifest.model_dump(mode="json")),
        "created_at": at,
        "created_by": "test",
        "revision": _REVISION,
    }
    versions = [version | {"adapter_id": row["id"], "digest": f"sha256:{row['id']:064x}"} for row in adapters]

    def write(connection: Connection) -> None:
        connection.execute(update(RevisionRow).values(number=_REVISION))
        connection.execute(insert(TenantRow), {"name": tenant, "created_at": at, "revision": _REVISION, "weight": 1.0})
        connection.execute(insert(AdapterRow), adapters)
        connection.execute(insert(VersionRow), versions)

    await engines.run(Access.WRITE, write)
    await engines.close()
