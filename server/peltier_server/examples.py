"""Artifacts that a new store begins with."""

import asyncio
import logging
from pathlib import Path

from peltier_adapters.blobs import Blobs
from peltier_adapters.errors import AdapterError
from peltier_client.errors import PeltierError

from peltier_server.caller import TENANT, Caller
from peltier_server.publisher import Place, Publisher
from peltier_server.settings import SettingsError

logger = logging.getLogger(__name__)

_PUBLISHED = "examples-published"
_ITSELF = Caller(TENANT, frozenset({"publish"}), "server")


async def publish_examples(directory: Path, blobs: Blobs, publisher: Publisher) -> None:
    """Publishes every artifact in `directory`, once a store: one that was deleted does not come back later.

    One that this backbone refuses is logged and tried again at the next start.
    """
    if await blobs.has_note(_PUBLISHED):
        return
    paths = await asyncio.to_thread(_artifacts, directory)
    published = [await _publish(path, publisher) for path in paths]
    if all(published):
        await blobs.note(_PUBLISHED)


def _artifacts(directory: Path) -> list[Path]:
    if not directory.is_dir():
        raise SettingsError(f"setting 'publish' is {str(directory)!r}: it is not a directory")
    return sorted(directory.glob("*.safetensors"))


async def _publish(path: Path, publisher: Publisher) -> bool:
    try:
        entry, _ = await publisher.publish(await asyncio.to_thread(path.read_bytes), Place(_ITSELF))
    except (PeltierError, AdapterError, OSError) as error:
        logger.warning("example %s is not published: %s", path, error)
        return False
    logger.info("published example %s as version %d", entry.version.name, entry.number)
    return True
