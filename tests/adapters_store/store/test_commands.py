"""`peltier store` as an operator runs it, over a real store."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from peltier_store.blobs.blobs import BlobError, Blobs, digest_of
from peltier_store.commands import app
from peltier_store.registry.contents import schema_revision
from peltier_store.registry.extensions.registry import Registry
from typer.testing import CliRunner, Result

from tests.adapters_store.store.conftest import manifest_of, opened, upload

# As the installed command runs it, and without torch.
PROGRAM = """
import sys
from importlib.metadata import EntryPoint
from peltier_client import cli
from peltier_client.commands import plugins

plugins.entry_points = lambda group: [EntryPoint("store", "peltier_store.commands:app", group)]
try:
    cli.main()
finally:
    assert not {"torch", "transformers"} & sys.modules.keys()
"""


def peltier_store(*arguments: str | Path) -> Result:
    """Runs `peltier store …` in this process."""
    return CliRunner().invoke(app, [*map(str, arguments)])


def process(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs `peltier store …` in a process of its own."""
    command = [sys.executable, "-c", PROGRAM, "store", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.fixture(scope="module")
def filled(make_registry, tmp_path_factory, bert, make_artifact):
    """The directory of a store with one version, one that is deleted, and an orphan, to copy."""
    directory = tmp_path_factory.mktemp("filled") / "store"
    url = make_registry(directory / "registry.db")
    asyncio.run(fill(url, directory / "blobs", *(make_artifact(bert, seed=seed, proved=False) for seed in (0, 1))))
    return directory


@pytest.fixture
def store(filled: Path, tmp_path: Path) -> Path:
    """The directory of such a store."""
    return Path(shutil.copytree(filled, tmp_path / "store"))


async def fill(url: str, directory: Path, *contents: bytes) -> None:
    blobs = Blobs.open(directory)
    async with opened(url) as registry:
        for data in contents:
            await upload(registry, blobs, data, manifest=manifest_of(data))
        await registry.delete_version("default", "demo", 2, actor="test")
    await blobs.put(b"orphan")
    make_older(directory)


def make_older(blobs: Path) -> None:
    """Three hours pass for every blob."""
    then = time.time() - 3 * 3600
    for path in (blobs / "sha256").iterdir():
        os.utime(path, (then, then))


def test_a_store_is_moved_into_a_bucket(store: Path, tmp_path: Path, s3_store: str) -> None:
    """Export, import into a bucket with a new registry, and verify: everything is there."""
    done = peltier_store("export", tmp_path / "backup.tar", "--store", store)
    assert done.exit_code == 0
    assert "2 versions" in done.stdout
    assert "; 2 blobs of " in done.stdout
    moved = ("--store", s3_store, "--registry", f"sqlite+aiosqlite:///{tmp_path / 'new.db'}")
    assert json.loads(peltier_store("import", tmp_path / "backup.tar", *moved, "--json").stdout)["num_blobs"] == 2
    verdict = json.loads(peltier_store("verify", *moved, "--json").stdout)
    assert (verdict["num_versions"], verdict["num_blobs"], verdict["problems"]) == (2, 2, [])
    again = peltier_store("import", tmp_path / "backup.tar", *moved)
    assert str(again.exception).startswith("the registry is not empty: its table ")


@pytest.mark.slow  # what the commands do is tested in this process
def test_the_program_reports_errors_in_a_line(store: Path, tmp_path: Path) -> None:
    """With exit status 1; and it needs no torch."""
    done = process("export", tmp_path / "backup.tar", "--store", store)
    assert (done.returncode, done.stderr) == (0, "")
    assert peltier_store("import", tmp_path / "backup.tar", "--store", tmp_path / "new").exit_code == 0
    again = process("import", tmp_path / "backup.tar", "--store", tmp_path / "new")
    assert (again.returncode, again.stdout) == (1, "")
    assert re.fullmatch(r"error: the registry is not empty: its table [^\n]+\n", again.stderr)


@pytest.mark.parametrize("command", [("export", "backup.tar"), ("verify",)])
def test_reading_a_store_writes_nothing_to_it(store, tmp_path, monkeypatch, command):
    """A backup before an upgrade does not change the schema that older servers need."""
    monkeypatch.chdir(tmp_path)
    (store / "blobs" / "create-only-probe").unlink()
    assert peltier_store(*command, "--store", store).exit_code == 0
    assert [path.name for path in (store / "blobs").iterdir()] == ["sha256"]
    (store / "blobs").rename(tmp_path / "elsewhere")
    done = peltier_store(*command, "--store", store)
    assert str(done.exception).startswith(
        f"the blob store '{store}/blobs' cannot be opened: the directory does not exist"
    )
    assert not (store / "blobs").exists()


def test_problems_are_exit_status_1(store: Path) -> None:
    """verify lists an orphan, and fails if the bytes of a version are gone."""
    sound = peltier_store("verify", "--store", store)
    assert sound.exit_code == 0
    assert f"no version needs {digest_of(b'orphan')} (6 bytes" in sound.stdout
    assert sound.stdout.endswith("bytes: all as recorded\n")
    for path in (store / "blobs" / "sha256").iterdir():
        path.unlink()
    broken = peltier_store("verify", "--store", store)
    assert broken.exit_code == 1
    assert broken.stdout.count(" has lost its bytes: ") == 2
    assert broken.stdout.endswith("bytes: 2 problems\n")


def test_garbage_goes_and_deleted_versions_after_their_grace(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """gc deletes the orphan, and the bytes of a deleted version after the given grace period."""
    first = json.loads(peltier_store("gc", "--store", store, "--json").stdout)
    assert (first["num_kept"], first["num_deleted"], first["deleted_bytes"]) == (2, 1, 6)
    monkeypatch.setenv("PELTIER_UNDELETE_SECONDS", "3600")
    assert json.loads(peltier_store("gc", "--store", store, "--json").stdout)["num_kept"] == 2
    second = peltier_store("gc", "--store", store, "--undelete-seconds", "0")
    assert second.stdout.startswith("deleted 1 blobs (")
    assert second.stdout.endswith("; 1 are kept\n")
    assert peltier_store("verify", "--store", store).exit_code == 0


@pytest.mark.parametrize("command", [("export", "backup.tar"), ("verify",), ("gc",)])
def test_a_store_of_another_registry_is_left_alone(store, make_registry, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    assert peltier_store("gc", "--store", store).exit_code == 0
    before = sorted((store / "blobs" / "sha256").iterdir())
    done = peltier_store(*command, "--store", store, "--registry", make_registry(tmp_path / "other.db"))
    assert isinstance(done.exception, BlobError)
    assert "belongs to the registry" in str(done.exception)
    assert sorted((store / "blobs" / "sha256").iterdir()) == before


@pytest.mark.parametrize("command", [("export", "backup.tar"), ("verify",), ("gc",)])
def test_a_store_that_is_not_there_is_not_made(tmp_path: Path, command: tuple[str, ...]) -> None:
    done = peltier_store(*command, "--store", tmp_path / "strore")
    assert isinstance(done.exception, BlobError)
    assert str(done.exception) == f"there is no store: the registry '{tmp_path}/strore/registry.db' does not exist"
    assert list(tmp_path.iterdir()) == []


def test_a_store_may_be_named_by_the_environment(store: Path, monkeypatch: pytest.MonkeyPatch, s3_store: str) -> None:
    """PELTIER_STORE and PELTIER_REGISTRY mean the same as for the server."""
    monkeypatch.setenv("PELTIER_STORE", str(store))
    assert peltier_store("verify").exit_code == 0
    monkeypatch.setenv("PELTIER_STORE", s3_store)
    assert "cannot hold a registry: also give" in str(peltier_store("verify").exception)
    monkeypatch.setenv("PELTIER_REGISTRY", f"sqlite+aiosqlite:///{store / 'registry.db'}")
    assert peltier_store("verify").stdout.endswith("2 problems\n")


def test_a_refused_backup_leaves_no_store(tmp_path: Path, store: Path) -> None:
    """A damaged backup is refused before the store is created; the complete one is imported there."""
    peltier_store("export", tmp_path / "backup.tar", "--store", store)
    data = (tmp_path / "backup.tar").read_bytes()
    (tmp_path / "cut.tar").write_bytes(data[: len(data) // 2])
    new = tmp_path / "new"
    assert peltier_store("import", tmp_path / "cut.tar", "--store", new).exit_code != 0
    assert not new.exists()
    assert peltier_store("import", tmp_path / "backup.tar", "--store", new).exit_code == 0


def test_a_refused_import_makes_no_registry(tmp_path: Path, store: Path) -> None:
    """Blobs of another store are refused before there is a registry beside them."""
    peltier_store("export", tmp_path / "backup.tar", "--store", store)
    new = tmp_path / "new"
    asyncio.run(Blobs.open(new / "blobs").put(b"of another store"))
    before = sorted(new.rglob("*"))
    result = peltier_store("import", tmp_path / "backup.tar", "--store", new)
    assert result.exit_code != 0
    assert "holds 1 blobs that the backup does not" in str(result.exception)
    assert sorted(new.rglob("*")) == before


def test_a_migrated_registry_can_be_opened_for_reading(tmp_path: Path) -> None:
    """`migrate` creates it, and changes nothing where it has the schema already."""
    location = tmp_path / "store"

    async def identity() -> str:
        registry = await Registry.open(f"sqlite+aiosqlite:///{location / 'registry.db'}", migrate=False)
        try:
            return await registry.identity()
        finally:
            await registry.close()

    identities = set()
    for _ in range(2):
        result = peltier_store("migrate", "--store", location)
        assert (result.exit_code, result.output) == (
            0,
            f"the registry has the schema of this release, {schema_revision()}\n",
        )
        identities.add(asyncio.run(identity()))
    assert len(identities) == 1
