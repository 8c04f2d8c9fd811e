"""The checks of `peltier doctor`, on this machine and on worse ones."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest
from peltier_adapters.artifact.source import digest_of
from peltier_backbone.native import choice
from peltier_client.commands.doctor import Finding
from peltier_server.doctor import checks, machine
from peltier_server.doctor.checks import check, check_packages, check_store
from peltier_server.doctor.machine import check_memory, check_processor
from peltier_server.extensions.settings import Settings
from peltier_server.settings import ComputeSettings, StoreSettings
from peltier_store.blobs.blobs import Blobs
from peltier_store.registry.extensions.registry import Registry

from tests.support.levels import LEVELS

DATA = b"artifact"


def told(findings: Iterable[Finding], *levels: str) -> list[str]:
    return [f"{one.subject}: {one.text}" for one in findings if one.level in levels]


def test_this_machine_is_well(tmp_path: Path) -> None:
    """Nothing is broken here, each part is checked, and what is not well has a next step."""
    found = list(check({"store": str(tmp_path / "none"), "device_bytes": 2**20, "host_bytes": 0}))
    assert told(found, "broken") == []
    subjects = {"packages", "processor", "kernels", "precision", "gpu", "backbone", "memory", "store"}
    assert subjects <= {one.subject for one in found}
    assert all(one.next_step for one in found if one.level != "ok" and one.subject != "kernels")


def test_settings_that_cannot_be_used_are_broken() -> None:
    (*_, last) = check({"port": -1})
    assert (last.subject, last.level) == ("settings", "broken")
    assert last.text.startswith("setting 'port' is -1: ")


def test_old_and_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "version", lambda name: {"torch": "1.13.1", "peltier": "0.1.0"}.get(name, "99999"))
    lines = ["torch>=2.11", "rich>=15", 'redis>=5; extra == "redis"']
    monkeypatch.setattr(checks, "requires", lambda name: lines)
    found = list(check_packages())
    assert told(found, "broken") == ["packages: torch 1.13.1 is installed, and this release needs torch>=2.11"]
    assert found[0].next_step == 'pip install "torch>=2.11"'


def test_a_machine_without_kernels_is_slow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / f"{LEVELS[-1]}.so").write_bytes(b"no library")
    monkeypatch.setattr(choice, "_FOLDER", tmp_path)
    monkeypatch.setattr(machine, "usable_cores", lambda: 1)
    monkeypatch.setattr(choice, "_library", choice._library.__wrapped__)
    monkeypatch.setattr(choice, "_choose", choice._choose.__wrapped__)
    found = list(check_processor(ComputeSettings(threads=4, device="cpu", dtype="float32")))
    slow = told(found, "slow")
    assert slow[0] == "processor: 4 threads share 1 cores and wait for each other"
    assert slow[1] == f"kernels: the kernels {LEVELS[0]} for this processor are not used: it was not built"
    assert slow[-2].startswith(f"kernels: the kernels {LEVELS[-1]} for this processor are not used: ")
    assert slow[-1].startswith("kernels: there are no native kernels")
    (precision, *_) = [text for text in told(found, "ok") if text.startswith("precision")]
    assert precision == "precision: in float32 torch computes: no native kernels can be used here"


@pytest.mark.parametrize(
    ("kernels", "level", "text"),
    [
        (LEVELS[-1], "ok", f"kernels: the native kernels are of level {LEVELS[-1]}"),
        ("torch", "note", "kernels: the setting kernels is torch, so no native kernels are used"),
        ("neon" if LEVELS[-1] == "plain" else "plain", "broken", "kernels: kernels '"),
    ],
)
def test_the_setting_of_kernels_is_checked(kernels: str, level: str, text: str) -> None:
    """A level of another machine is broken. The process keeps its own setting."""
    found = list(check_processor(ComputeSettings(device="cpu", kernels=kernels)))
    assert any(one.startswith(text) for one in told(found, level))
    assert choice._Process.kernels == "auto"


def test_memory_below_the_settings_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_bytes", lambda: 2**30)
    (text,) = told(check_memory(Settings(compute=ComputeSettings(device="cpu", dtype="float32"))), "broken")
    assert "device_bytes 1.1 GB" in text
    assert text.endswith("this machine or its container has 1.1 GB")


def test_a_backbone_that_is_missing_is_broken(tmp_path: Path) -> None:
    (text,) = told(
        check_memory(Settings(compute=ComputeSettings(backbone=str(tmp_path / "none"), device="cpu"))), "broken"
    )
    assert text.startswith(f"backbone: the backbone '{tmp_path}/none' cannot be read: ")


@pytest.fixture
async def store(tmp_path: Path) -> Path:
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
    (finding,) = check_store(StoreSettings(store=store))
    return finding


def set_schema(store: Path, revision: str) -> None:
    with closing(sqlite3.connect(store / "registry.db")) as database, database:
        database.execute("UPDATE alembic_version SET version_num = ?", (revision,))


def test_a_store_that_is_well(store: Path) -> None:
    finding = find(store)
    assert finding.level == "ok"
    assert "1 versions, whose bytes are all there; the registry has the schema 00" in finding.text


def test_a_store_that_is_not_there_yet(tmp_path: Path) -> None:
    finding = find(tmp_path / "none")
    assert (finding.level, finding.next_step) == ("note", "peltier serve creates it")
    assert not (tmp_path / "none").exists()


def test_lost_bytes_are_broken(store: Path) -> None:
    (blob,) = (store / "blobs" / "sha256").iterdir()
    blob.unlink()
    finding = find(store)
    assert finding.level == "broken"
    assert finding.text == "1 of 1 versions have lost their bytes, such as sst2@1 of tenant default"


def test_another_schema_is_broken(store: Path) -> None:
    set_schema(store, "0016")
    finding = find(store)
    assert finding.level == "broken"
    assert "has the schema revision '0016', which this version of Peltier does not know" in finding.text


def test_a_damaged_registry_is_broken(store: Path) -> None:
    (store / "registry.db").write_bytes(b"not a database, and long enough to be taken for one" * 100)
    finding = find(store)
    assert (finding.level, finding.next_step) == ("broken", "see docs/operations.md#store-and-registry")
