"""The store as `peltier doctor` finds it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from peltier_adapters.artifact.source import digest_of
from peltier_client.commands.doctor import Finding
from peltier_server.doctor.store import check_store
from peltier_server.settings import LimitSettings, StoreSettings
from peltier_store.blobs.blobs import Blobs
from peltier_store.registry import Registry

DATA = b"artifact"


@pytest.fixture
async def store(tmp_path: Path) -> Path:
    """A directory with one version."""
    blobs = Blobs.open(tmp_path / "blobs")
    registry = await Registry.open(f"sqlite+aiosqlite:///{tmp_path / 'registry.db'}")
    reservation = await registry.reserve(digest_of(DATA))
    await blobs.put(DATA)
    await registry.publish(
        "default", "sst2", reservation, size_bytes=len(DATA), preset="lora", manifest="{}", actor="test"
    )
    await registry.close()
    return tmp_path


def find(store: Path) -> Finding:
    """The only finding about a store."""
    (finding,) = check_store(StoreSettings(store=store), LimitSettings().max_artifact_bytes)
    return finding


def set_schema(store: Path, revision: str) -> None:
    with closing(sqlite3.connect(store / "registry.db")) as database, database:
        database.execute("UPDATE alembic_version SET version_num = ?", (revision,))


def test_a_store_that_is_well(store: Path) -> None:
    """Its versions and the level of its schema are named."""
    finding = find(store)
    assert finding.level == "ok"
    assert "1 versions, whose bytes are all there; the registry has the schema 00" in finding.text


def test_a_store_that_is_not_there_yet(tmp_path: Path) -> None:
    """A note, and it is not made."""
    finding = find(tmp_path / "none")
    assert (finding.level, finding.next_step) == ("note", "peltier serve creates it")
    assert not (tmp_path / "none").exists()


def test_lost_bytes_are_broken(store: Path) -> None:
    """With a version that lost them."""
    (blob,) = (store / "blobs" / "sha256").iterdir()
    blob.unlink()
    finding = find(store)
    assert finding.level == "broken"
    assert finding.text == "1 of 1 versions have lost their bytes, such as sst2@1 of tenant default"


@pytest.mark.parametrize(("revision", "said"), [("0001", "older version"), ("9999", "newer version")])
def test_another_schema_is_broken(store: Path, revision: str, said: str) -> None:
    """An older one is upgraded by a server of this release, a newer one by none."""
    set_schema(store, revision)
    finding = find(store)
    assert finding.level == "broken"
    assert f"was written by a{'n' if said[0] == 'o' else ''} {said} of Peltier" in finding.text


def test_a_damaged_registry_is_broken(store: Path) -> None:
    """With the sentence of the database."""
    (store / "registry.db").write_bytes(b"not a database, and long enough to be taken for one" * 100)
    finding = find(store)
    assert (finding.level, finding.next_step) == ("broken", "see docs/operations.md#store-and-registry")
