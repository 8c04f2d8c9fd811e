"""A server on loopback, in its own process with one thread of the backbone, and stores that are filled without
publishing: to validate and sync thousands of adapters would take minutes.
"""

import asyncio
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx2
from peltier_adapters.artifact.manifest import read_header
from peltier_adapters.artifact.source import digest_of
from peltier_server.auth.keyring import TENANT
from peltier_store.blobs.blobs import Blobs
from peltier_store.location import StoreLocation
from peltier_store.registry.database import Access, create_engines, database_url
from peltier_store.registry.extensions.registry import Registry
from peltier_store.registry.tables import AdapterRow, RevisionRow, VersionRow
from sqlalchemy import Connection, insert, text, update

from .ports import ReservedPort

PELTIER = (sys.executable, "-m", "peltier_client")
_START_SECONDS, _END_SECONDS = 120, 30
_CPU_CLOCK = 2

# After SIGTERM a benchmark also ends its servers.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


def cpu_seconds_of(pid: int) -> float:
    """What a process has used of the cores until now, in user and kernel mode."""
    # The number of the clock of another process, as `clock_getcpuclockid` computes it. /proc counts ticks of 10 ms.
    return time.clock_gettime((~pid << 3) | _CPU_CLOCK)


@dataclass(frozen=True)
class Server:
    """A process that answers at `url`."""

    url: str
    process: "subprocess.Popen[bytes]"

    def wait_until_ready(self, seconds: float = _START_SECONDS) -> None:
        """Returns once `/ready` says so. Raises RuntimeError if the process has ended or takes longer than that."""
        deadline = time.monotonic() + seconds
        while not self._is_ready():
            if self.process.poll() is not None:
                raise RuntimeError(f"the server at {self.url} has ended with status {self.process.returncode}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"the server at {self.url} has not become ready within {seconds} s")
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        try:
            return httpx2.get(f"{self.url}/ready", timeout=2).status_code == 200
        except httpx2.HTTPError:
            return False

    @property
    def cpu_seconds(self) -> float:
        """What the whole process has used of the cores until now, in user and kernel mode."""
        return cpu_seconds_of(self.process.pid)

    def core_share(self, seconds: float) -> float:
        """The CPU time that the process uses in the next `seconds`, as a share of one core."""
        begun, used = time.monotonic(), self.cpu_seconds
        time.sleep(seconds)
        return (self.cpu_seconds - used) / (time.monotonic() - begun)

    def counter(self, name: str) -> float:
        """The sum of a counter's samples at `/metrics`; of a histogram ask for its `_sum` or `_count`."""
        lines = httpx2.get(f"{self.url}/metrics", timeout=30).text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


@contextmanager
def serving(
    *flags: str,
    store: Path | None = None,
    command: Sequence[str] = PELTIER,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """`peltier serve` with MiniLM over `store`, or a new one; `command` stands in for `peltier`."""
    with tempfile.TemporaryDirectory() as directory:
        place = store or Path(directory) / "store"
        fixed = ["--backbone", "minilm", "--store", str(place), "--threads", "1", "--lame-duck-seconds", "0"]
        with started([*command, "serve", *fixed, *flags], environment) as server:
            yield server


@contextmanager
def started(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    """A process that takes `--port` and says at `/ready` that it is, while the block runs."""
    own = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
    with ReservedPort() as port:
        process = subprocess.Popen([*command, "--port", str(port.number)], env=own)
        server = Server(f"http://127.0.0.1:{port.number}", process)
        try:
            server.wait_until_ready()
            yield server
        finally:
            _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


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
         "manifest": one.manifest, "created_at": at, "created_by": "benchmark", "revision": 2}
        for place, one in enumerate(stocked, 1) for number, digest in enumerate(one.digests, 1)
    ]  # fmt: skip

    def insert_all(connection: Connection) -> None:
        connection.execute(update(RevisionRow).values(number=2))
        for table, rows in ((AdapterRow, adapters), (VersionRow, versions)):
            for some in range(0, len(rows), _CHUNK):
                connection.execute(insert(table), rows[some : some + _CHUNK])
        if connection.dialect.name == "postgresql":
            # It does not count ids that are given.
            counted = text("SELECT setval(pg_get_serial_sequence('adapters', 'id'), :last)")
            connection.execute(counted, {"last": len(adapters)})

    await engines.run(Access.WRITE, insert_all)
    await engines.close()
