"""Publishes the artifacts of a source in a new store."""

import asyncio
import logging
from collections.abc import Collection, Sequence
from pathlib import Path

from peltier_adapters.artifact.manifest import read_header
from peltier_adapters.errors import AdapterError
from peltier_client.errors import PeltierError
from peltier_store.blobs.location import is_remote
from peltier_store.registry.extensions.registry import Registry
from peltier_store.sources.artifact_files import SourceError, SourceFile, find_artifacts

from peltier_server.auth.keyring import TENANT, Caller
from peltier_server.catalog.publisher import Publisher, UploadTarget
from peltier_server.settings import SettingsError

logger = logging.getLogger(__name__)

_CALLER = Caller(TENANT, frozenset({"publish"}), "server")


async def publish_examples(source: Path | str, registry: Registry, publisher: Publisher, max_bytes: int) -> None:
    """Publishes the artifacts of a source, of at most `max_bytes` each, whose names are new to the registry.

    So a deleted example is not published again, also not after a restore, and no example replaces an adapter of a user.
    An example that the server refuses is logged, and tried again at the next start. So is a bucket or a hub that does
    not answer: the server starts without it.
    """
    taken = await registry.names(_CALLER.tenant)
    for file in await asyncio.to_thread(_artifacts, source):
        await _publish(file, taken, publisher, max_bytes)


def _artifacts(source: Path | str) -> Sequence[SourceFile]:
    try:
        return find_artifacts(source)
    except AdapterError as error:
        if not is_remote(source):
            raise SettingsError(f"setting 'publish' is {str(source)!r}: {error}") from None
        logger.warning("the examples of %s are not published: %s", str(source).partition("?")[0], error)
        return []


async def _publish(file: SourceFile, taken: Collection[str], publisher: Publisher, max_bytes: int) -> None:
    try:
        if file.size_bytes > max_bytes:
            raise SourceError(f"the artifact has {file.size_bytes} bytes; at most {max_bytes} are allowed")
        data = await asyncio.to_thread(file.read)
        if read_header(data)[0].name in taken:
            return
        entry, _ = await publisher.publish(data, UploadTarget(_CALLER))
    except (PeltierError, AdapterError, OSError) as error:
        logger.warning("example %s is not published: %s", file.address, error)
    else:
        logger.info("published example %s as version %d", entry.version.name, entry.number)
