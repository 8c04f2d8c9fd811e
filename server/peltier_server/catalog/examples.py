"""Publishes example artifacts in a new store."""

import asyncio
import logging
from collections.abc import Collection
from pathlib import Path

from peltier_adapters.artifact.manifest import read_header
from peltier_adapters.errors import AdapterError
from peltier_client.errors import PeltierError
from peltier_store.registry import Registry

from peltier_server.auth.keyring import TENANT, Caller
from peltier_server.catalog.publisher import Publisher, UploadTarget
from peltier_server.settings import SettingsError

logger = logging.getLogger(__name__)

_CALLER = Caller(TENANT, frozenset({"publish"}), "server")


async def publish_examples(directory: Path, registry: Registry, publisher: Publisher) -> None:
    """Publishes the artifacts in `directory` whose names are new to the registry.

    So a deleted example is not published again, also not after a restore, and no example replaces an adapter of a user.
    An example that the server refuses is logged, and tried again at the next start.
    """
    taken = await registry.names(_CALLER.tenant)
    for path in await asyncio.to_thread(_artifacts, directory):
        await _publish(path, taken, publisher)


def _artifacts(directory: Path) -> list[Path]:
    if not directory.is_dir():
        raise SettingsError(f"setting 'publish' is {str(directory)!r}: it is not a directory")
    return sorted(directory.glob("*.safetensors"))


async def _publish(path: Path, taken: Collection[str], publisher: Publisher) -> None:
    try:
        data = await asyncio.to_thread(path.read_bytes)
        if read_header(data)[0].name in taken:
            return
        entry, _ = await publisher.publish(data, UploadTarget(_CALLER))
    except (PeltierError, AdapterError, OSError) as error:
        logger.warning("example %s is not published: %s", path, error)
    else:
        logger.info("published example %s as version %d", entry.version.name, entry.number)
