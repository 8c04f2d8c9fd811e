import asyncio
import io
import json
import shutil
import tarfile
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from peltier_client.protocol.administration import TenantQuotas
from peltier_store.backup import BackupError, BackupSummary, export_store, import_store, read_backup
from peltier_store.blobs.blobs import BlobError, Blobs, digest_of
from peltier_store.garbage import Collector
from peltier_store.location import require_own
from peltier_store.registry.contents import DumpedRow
from peltier_store.registry.errors import RegistryConflict, RegistryError
from peltier_store.registry.extensions.queue_records import TrainingDraft
from peltier_store.registry.extensions.registry import Registry

from tests.adapters_store.store.conftest import MakeRegistry, Old, opened, upload

ACTOR = "ann"
Members = dict[str, bytes]


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


async def restored(registry: Registry, blobs: Blobs, path: Path) -> BackupSummary:
    """Imports the backup at `path`."""
    with read_backup(path) as backup:
        return await import_store(registry, blobs, backup)


async def fill(registry: Registry, blobs: Blobs) -> None:
    """Something of everything that a registry can hold."""
    await registry.create_tenant("acme", TenantQuotas(requests_per_second=0.1, max_stored_bytes=2**40), actor=ACTOR)
    expires_at = datetime.now(UTC) + timedelta(days=1)
    for prefix, scopes in (("abcdefgh", {"predict"}), ("ijklmnop", {"publish", "admin"})):
        await registry.create_key(
            "acme", prefix=prefix, digest="00" * 32, scopes=scopes, note="é ∞", expires_at=expires_at, actor=ACTOR
        )
    await registry.revoke_key("abcdefgh", actor=ACTOR)
    reported = {"manifest": '{"é": NaN}', "report": '{"é": 1}'}
    for data in (b"one", b"two", b"three", bytes(100_000)):
        await upload(registry, blobs, data, **reported)
    await upload(registry, blobs, b"one", tenant="acme", **reported)
    await registry.set_public("acme", "demo", True, actor=ACTOR)
    for split in ({1: 1.0}, {1: 0.9, 2: 0.1}):
        await registry.set_alias("default", "demo", "production", split, actor=ACTOR)
    await registry.rollback_alias("default", "demo", "production", actor=ACTOR)
    await registry.deprecate("default", "demo", 2, "worse", actor=ACTOR)
    await registry.delete_version("default", "demo", 3, actor=ACTOR)
    await train(registry, blobs)


async def train(registry: Registry, blobs: Blobs) -> None:
    """A training with its examples, its checkpoint and its log, after one that is deleted."""
    examples, checkpoint = [await registry.reserve(await blobs.put(data)) for data in (b"{}", b"123")]
    file = await registry.files.add(
        "acme", examples, name="é.jsonl", purpose="fine-tune", size_bytes=2, num_rows=1, actor=ACTOR
    )
    draft = TrainingDraft("demo", {"seed": 1}, file.id)
    deleted = await registry.trainings.create("acme", draft, actor=ACTOR)
    await registry.trainings.claim("worker")
    await registry.trainings.settle(deleted.id, "worker", state="failed", reason="of a test", seconds=0.5)
    await registry.trainings.remove("acme", deleted.id, actor=ACTOR)
    training = await registry.trainings.create("acme", draft, actor=ACTOR)
    await registry.trainings.claim("worker")
    await registry.trainings.renew(
        training.id, "worker", progress={"loss": 0.5}, checkpoint=checkpoint, checkpoint_bytes=3
    )


async def contents(registry: Registry) -> list[DumpedRow]:
    """All rows; the revision of a row is the registry's own."""
    lines: list[DumpedRow] = []
    await registry.contents.dump(lines.append)
    return [DumpedRow(line.table, {key: line.row[key] for key in line.row.keys() - {"revision"}}) for line in lines]


async def stored(blobs: Blobs) -> dict[str, bytes]:
    return {entry.digest: await blobs.get(entry.digest) async for entry in blobs.entries()}


@pytest.fixture(scope="module")
def filled(make_registry: MakeRegistry, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a filled store, `source`, and a backup of it, `backup.tar`, both to copy."""
    folder = tmp_path_factory.mktemp("filled")

    async def make() -> None:
        async with opened(make_registry(folder / "source" / "registry.db")) as registry:
            blobs = Blobs.open(folder / "source" / "blobs")
            await fill(registry, blobs)
            await export_store(registry, blobs, folder / "backup.tar")

    asyncio.run(make())
    return folder


@pytest.fixture
async def source(filled: Path, tmp_path: Path) -> AsyncIterator[tuple[Registry, Blobs]]:
    """The filled store, in `source`."""
    shutil.copytree(filled / "source", tmp_path / "source")
    async with opened(f"sqlite+aiosqlite:///{tmp_path / 'source' / 'registry.db'}") as registry:
        yield registry, Blobs.open(tmp_path / "source" / "blobs")


@pytest.fixture
def backup(filled: Path, tmp_path: Path) -> Path:
    """The backup of it."""
    return Path(shutil.copy(filled / "backup.tar", tmp_path))


async def test_a_backup_comes_back_in_another_kind_of_store(source, backup, tmp_path, s3_store, new_url, make_registry):
    """Every row and every byte is the same after SQLite and a directory, the database and a bucket, and back."""
    rows, data = await contents(source[0]), await stored(source[1])
    assert {line.table for line in rows} == {
        "tenants", "keys", "adapters", "versions", "reports", "aliases", "audit",
        "files", "trainings", "training_events", "training_time",
    }  # fmt: skip
    async with opened(new_url) as registry:
        blobs = Blobs.open(s3_store)
        summary = await restored(registry, blobs, backup)
        assert (summary.num_blobs, summary.blob_bytes) == (6, 100_016)
        assert (await contents(registry), await stored(blobs)) == (rows, data)
        await export_store(registry, blobs, tmp_path / "again.tar")
    async with opened(make_registry(tmp_path / "back" / "registry.db")) as registry:
        blobs = Blobs.open(tmp_path / "back" / "blobs")
        await restored(registry, blobs, tmp_path / "again.tar")
        assert (await contents(registry), await stored(blobs)) == (rows, data)


async def test_an_imported_registry_goes_on(new_url: str, backup: Path, tmp_path: Path) -> None:
    """Version numbers continue, also in PostgreSQL, and replicas that knew the empty registry see the import."""
    async with opened(new_url) as registry:
        blobs, seen = Blobs.open(tmp_path / "new" / "blobs"), await registry.position()
        await restored(registry, blobs, backup)
        changed = await registry.snapshot(seen)
        assert [(adapter.tenant, len(adapter.versions)) for adapter in changed.adapters] == [
            ("acme", 1),
            ("default", 4),
        ]
        assert len(changed.tenants) == 2
        await upload(registry, blobs, b"five")
        await upload(registry, blobs, b"first", name="another")
        await registry.set_alias("default", "demo", "new", {5: 1.0}, actor=ACTOR)
        assert {version.number for version in await registry.versions() if version.tenant == "default"} >= {4, 5, 1}


async def test_a_backup_is_the_owners_alone(source: tuple[Registry, Blobs], tmp_path: Path) -> None:
    """Only its owner can read the file, its last member is the summary, and no other file is left."""
    backup = tmp_path / "backup.tar"
    await export_store(*source, backup)
    assert backup.stat().st_mode & 0o777 == 0o600
    with tarfile.open(backup) as tar:
        names = tar.getnames()
    assert names[-2:] == ["registry.jsonl", "backup.json"]
    assert names_in(tmp_path) == {"backup.tar", "source"}


@pytest.mark.slow
async def test_a_backup_is_of_one_moment_while_servers_write(source, tmp_path, make_registry):
    """Exports during uploads, deletions, purges and collections contain the bytes of each version that they list."""
    registry, blobs = source
    running, published = True, asyncio.Event()

    async def write() -> int:
        number = 0
        while running:
            await upload(registry, blobs, b"%d" % number, name="busy")
            published.set()
            if number % 3 == 2:
                await registry.delete_adapter("default", "busy", actor=ACTOR)
                await registry.purge(timedelta(0), actor=ACTOR)
                await Collector(registry, blobs).run()
            number += 1
        return number

    writer = asyncio.create_task(write())
    counts = []
    for number in range(8):
        async with asyncio.timeout(120):
            for _ in range(2):  # the second one began after the export before
                published.clear()
                await published.wait()
        summary = await export_store(registry, blobs, tmp_path / f"{number}.tar")
        async with opened(make_registry(tmp_path / f"{number}" / "registry.db")) as other:
            await restored(other, Blobs.open(tmp_path / f"{number}" / "blobs"), tmp_path / f"{number}.tar")
        counts.append(summary.num_rows["audit"])
    running = False
    assert await writer > 8
    assert counts == sorted(set(counts))


async def test_a_backup_is_never_overwritten(source: tuple[Registry, Blobs], backup: Path) -> None:
    with pytest.raises(BackupError, match=r"backup\.tar' exists already; a backup is never overwritten"):
        await export_store(*source, backup)
    with read_backup(backup):
        pass


async def test_a_store_that_lacks_bytes_cannot_be_exported(source: tuple[Registry, Blobs], tmp_path: Path) -> None:
    """The export fails and leaves no file."""
    await source[1].delete(digest_of(b"two"))
    with pytest.raises(BlobError, match=f"holds no blob {digest_of(b'two')}"):
        await export_store(*source, tmp_path / "backup.tar")
    assert names_in(tmp_path) == {"source"}


async def test_no_room_is_one_sentence(source: tuple[Registry, Blobs]) -> None:
    with pytest.raises(BackupError, match=r"^the backup '/proc/backup\.tar' cannot be written: [^\n]+$"):
        await export_store(*source, Path("/proc/backup.tar"))


async def test_only_an_empty_registry_takes_a_backup(source: tuple[Registry, Blobs], backup: Path) -> None:
    before = await contents(source[0])
    with pytest.raises(RegistryConflict, match=r"^the registry is not empty: its table '[a-z]+' holds [0-9]+ rows$"):
        await restored(*source, backup)
    assert await contents(source[0]) == before


async def test_only_an_empty_blob_store_takes_a_backup(backup: Path, tmp_path: Path, registry: Registry) -> None:
    """Foreign blobs are refused. Blobs of the same backup are accepted, because an interrupted import leaves them."""
    blobs = Blobs.open(tmp_path / "new")
    await blobs.put(b"two")
    stranger = await blobs.put(b"something else")
    with pytest.raises(BackupError, match=r"^the blob store is not empty: it holds 1 blobs that the backup does not"):
        await restored(registry, blobs, backup)
    await blobs.delete(stranger)
    await restored(registry, blobs, backup)


async def test_a_store_that_fails_in_the_middle_leaves_nothing(backup, tmp_path, registry):
    """The registry stays empty, the collector removes the bytes, and the import can be repeated."""

    class Failing(Blobs):
        async def put(self, data: bytes) -> str:
            if len(data) > 1000:
                raise BlobError("the blob store is full")
            return await super().put(data)

    with pytest.raises(BlobError, match="is full"):
        await restored(registry, Failing.open(tmp_path / "new"), backup)
    blobs = Old.open(tmp_path / "new")
    assert await registry.versions() == []
    assert len(await stored(blobs)) == 5
    assert (await Collector(registry, blobs).run()).num_deleted == 5
    await restored(registry, blobs, backup)


async def test_a_store_follows_its_registry_into_a_new_one(source, backup, registry):
    """An import into the same blob store makes the new registry its owner; after a failure the old one still is."""
    old, blobs = source
    await require_own(old, blobs)
    collecting = await registry.begin_collection([digest_of(b"two")])
    with pytest.raises(RegistryError, match="are being deleted; try again"):
        await restored(registry, blobs, backup)
    await registry.contents.require_empty()
    await require_own(old, blobs)
    await registry.end_collection(collecting)
    await restored(registry, blobs, backup)
    await require_own(registry, blobs)
    with pytest.raises(BlobError, match="belongs to the registry"):
        await Collector(old, blobs).run()


async def test_blobs_that_vanish_meanwhile_stop_the_import(backup: Path, tmp_path: Path, registry: Registry) -> None:
    """The import fails if a collector has deleted blobs before the rows are inserted."""

    class Losing(Blobs):
        async def put(self, data: bytes) -> str:
            digest = await super().put(data)
            if data == b"two":
                await self.delete(digest)
            return digest

    with pytest.raises(BackupError, match=f"^1 blobs were deleted .* such as {digest_of(b'two')}$"):
        await restored(registry, Losing.open(tmp_path / "new"), backup)
    await registry.contents.require_empty()


def rewritten(backup: Path, change: Callable[[Members], None]) -> Path:
    """A copy of the backup with some of its members changed."""
    with tarfile.open(backup) as tar:
        members = {member.name: tar.extractfile(member).read() for member in tar.getmembers()}
    change(members)
    copy = backup.with_name("changed.tar")
    with tarfile.open(copy, "w") as tar:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return copy


def test_a_small_file_has_no_large_member(backup: Path) -> None:
    """A sparse member may be as large as it says; no backup has one."""
    name, sparse = "registry.jsonl", backup.with_name("sparse.tar")
    shutil.copy(backup, sparse)
    with tarfile.open(sparse, "a", format=tarfile.PAX_FORMAT) as tar:
        member, whole_map = tarfile.TarInfo(name), b"0\n".ljust(512, b"\0")
        keys = {"major": "1", "minor": "0", "name": name, "realsize": str(2**50)}
        member.pax_headers, member.size = {f"GNU.sparse.{key}": value for key, value in keys.items()}, len(whole_map)
        tar.addfile(member, io.BytesIO(whole_map))
    with tarfile.open(sparse) as tar:
        assert tar.getmembers()[-1].size == 2**50
    # The whole member before it is read.
    with read_backup(sparse):
        pass


def summarise(members: Members, **changes: Any) -> None:
    members["backup.json"] = json.dumps(json.loads(members["backup.json"]) | changes).encode()


def replace_rows(members: Members, text: bytes) -> None:
    members["registry.jsonl"] = text
    summarise(members, rows_digest=digest_of(text))


BLOB = f"blobs/{digest_of(b'two').replace(':', '/')}"
CHANGES: dict[str, tuple[Callable[[Members], object], str]] = {
    "no summary": (lambda members: members.pop("backup.json"), "is not a complete backup"),
    "a later format": (
        lambda members: summarise(members, format_version=2),
        "is not a backup that this version of Peltier can read",
    ),
    "another schema": (lambda members: summarise(members, schema_revision="0001"), "has schema '0001', but this"),
    "a blob less": (lambda members: members.pop(BLOB), "is damaged: it has 5 blobs of 6"),
    "another blob": (lambda members: members.update({BLOB: b"tvo"}), "the blob sha256:.* has other bytes"),
    "another row": (
        lambda members: members.update({"registry.jsonl": members["registry.jsonl"].replace(b"ann", b"bob")}),
        "is damaged: its registry has other bytes",
    ),
    "a version without its blob": (
        lambda members: (members.pop(BLOB), summarise(members, num_blobs=5)),
        f"it lacks the blob {digest_of(b'two')}",
    ),
    "a line that is no row": (
        lambda members: replace_rows(members, b"[1]\n"),
        "its registry has a malformed line",
    ),
    "an unknown table": (
        lambda members: replace_rows(members, b'{"table": "secrets", "row": {}}\n'),
        "the table 'secrets' is unknown",
    ),
    "an unknown column": (
        lambda members: replace_rows(members, b'{"table": "tenants", "row": {"rank": 1}}\n'),
        "a row of table 'tenants' has a missing or unknown column",
    ),
    "a reference to nothing": (
        lambda members: replace_rows(
            members, b"".join(x + b"\n" for x in members["registry.jsonl"].splitlines() if b'"versions"' in x)
        ),
        "FOREIGN KEY",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_a_damaged_backup_is_refused_as_a_whole(backup, tmp_path, registry, name):
    """A missing, changed or unknown member is refused in one sentence, and the registry stays empty."""
    change, sentence = CHANGES[name]
    with pytest.raises((BackupError, RegistryError), match=rf"\A[^\n]*{sentence}[^\n]*\Z"):
        await restored(registry, Blobs.open(tmp_path / "new"), rewritten(backup, change))
    await registry.contents.require_empty()


def cut_anywhere(backup: Path) -> Iterator[Path]:
    """Copies of the backup that end too early, and a file that never was one."""
    data, cut = backup.read_bytes(), backup.with_name("cut.tar")
    for length in (0, 100, 512, 700, len(data) // 2, data.rindex(b"backup.json"), data.rindex(b"rows_digest")):
        cut.write_bytes(data[:length])
        yield cut
    cut.write_bytes(b"no tar" * 1000)
    yield cut
    yield backup.with_name("missing.tar")


async def test_a_backup_that_breaks_off_is_refused(backup: Path, tmp_path: Path, registry: Registry) -> None:
    """A backup that was cut at any place is refused, and nothing of it is stored."""
    blobs = Blobs.open(tmp_path / "new")
    for cut in cut_anywhere(backup):
        with pytest.raises(BackupError, match=r"\A[^\n]+\Z"):
            await restored(registry, blobs, cut)
    await registry.contents.require_empty()
    assert await stored(blobs) == {}
