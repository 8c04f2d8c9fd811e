"""Many adapters in a store without publishing: to validate and sync every one would take minutes."""

import asyncio
import json
import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from common.serving import PELTIER, Server, serving
from peltier_adapters.artifact.manifest import read_header
from peltier_adapters.artifact.source import digest_of
from peltier_server.auth.keyring import TENANT
from peltier_store.blobs.blobs import Blobs
from peltier_store.location import StoreLocation
from peltier_store.registry import Registry
from peltier_store.registry.database import database_url
from peltier_store.registry.tables import AdapterRow, RevisionRow, VersionRow
from peltier_store.registry.transactions import Access, create_engines
from sqlalchemy import Connection, insert, update

_CHUNK = 1000


@dataclass(frozen=True)
class Stocked:
    """A task's newest version; there are as many as its number says, all alike but for their digests."""

    name: str
    digests: tuple[str, ...]
    size_bytes: int
    preset: str
    manifest: str


def variant(original: bytes, number: int) -> bytes:
    """The artifact with another first weight, so that its digest is its own."""
    data = bytearray(original)
    (length,) = struct.unpack_from("<Q", data)
    struct.pack_into("<f", data, 8 + length, 1e-6 * number)
    return bytes(data)


def stock(store: Path, originals: Mapping[str, bytes], count: int) -> list[str]:
    """`count` tasks with artifacts of their own, of each preset in turn, in a new store; their names in that order."""
    place = StoreLocation.of(store)
    store.mkdir()
    Blobs.open(place.blobs)
    stocked = list(_shelve(Path(place.blobs), originals, count))
    asyncio.run(register(place.registry, stocked))
    return [one.name for one in stocked]


@contextmanager
def serving_stock(
    originals: Mapping[str, bytes], count: int, *flags: str, command: Sequence[str] = PELTIER,
    environment: Mapping[str, str] | None = None,
) -> Iterator[tuple[Server, list[str]]]:  # fmt: skip
    """A server over such a store while the block runs, and the names of its tasks."""
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory) / "store"
        tasks = stock(store, originals, count)
        with serving(*flags, store=store, command=command, environment=environment) as server:
            yield server, tasks


def _shelve(blobs: Path, originals: Mapping[str, bytes], count: int) -> Iterator[Stocked]:
    presets = list(originals)
    manifests = {preset: manifest_text(data) for preset, data in originals.items()}
    for number in range(count):
        preset = presets[number % len(presets)]
        data = variant(originals[preset], number)
        yield Stocked(f"task-{number:05}", (write_blob(blobs, data),), len(data), preset, manifests[preset])


def write_blob(blobs: Path, data: bytes) -> str:
    """Writes what `Blobs.put` would write, without waiting for the disk ten thousand times; returns the digest."""
    digest = digest_of(data)
    (blobs / digest.replace(":", "/")).write_bytes(data)
    return digest


def manifest_text(data: bytes) -> str:
    """An artifact's manifest, as the registry has it."""
    return json.dumps(read_header(data)[0].model_dump(mode="json"))


async def register(url: str, stocked: Sequence[Stocked]) -> None:
    """Straight into the tables of a new registry, which counts its own adapters from 1."""
    await (await Registry.open(url)).close()
    at, engines = datetime.now(UTC), create_engines(database_url(url))
    adapters = [
        {"id": place, "tenant": TENANT, "name": one.name, "last_number": len(one.digests), "is_public": False,
         "revision": 2}
        for place, one in enumerate(stocked, 1)
    ]  # fmt: skip
    versions = [
        {"adapter_id": place, "number": number, "digest": digest, "size_bytes": one.size_bytes, "preset": one.preset,
         "manifest": one.manifest, "created_at": at, "created_by": "benchmark"}
        for place, one in enumerate(stocked, 1) for number, digest in enumerate(one.digests, 1)
    ]  # fmt: skip

    def insert_all(connection: Connection) -> None:
        connection.execute(update(RevisionRow).values(number=2))
        for table, rows in ((AdapterRow, adapters), (VersionRow, versions)):
            for some in range(0, len(rows), _CHUNK):
                connection.execute(insert(table), rows[some : some + _CHUNK])

    await engines.run(Access.WRITE, insert_all)
    await engines.close()
