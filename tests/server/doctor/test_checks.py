"""The checks of `peltier doctor`, on this machine and on worse ones."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from peltier_backbone.native import survey
from peltier_client.commands.doctor.finding import Finding
from peltier_server.doctor import memory, packages, processor
from peltier_server.doctor.checks import check
from peltier_server.doctor.memory import available_bytes, check_memory
from peltier_server.doctor.packages import check_packages
from peltier_server.doctor.processor import check_processor
from peltier_server.settings import Settings


def told(findings: Iterable[Finding], *levels: str) -> list[str]:
    """The subjects and texts of the findings of these levels."""
    return [f"{one.subject}: {one.text}" for one in findings if one.level in levels]


def test_this_machine_is_well(tmp_path: Path) -> None:
    """Nothing is broken here, each part is checked, and what is not well has a next step."""
    found = list(check({"store": str(tmp_path / "none"), "device_bytes": 2**20, "host_bytes": 0}))
    assert told(found, "broken") == []
    subjects = {"packages", "processor", "compiler", "kernels", "precision", "gpu", "backbone", "memory", "store"}
    assert subjects <= {one.subject for one in found}
    assert all(one.next_step for one in found if one.level != "ok" and one.subject != "kernels")


def test_settings_that_cannot_be_used_are_broken() -> None:
    """With the sentence that peltier serve says."""
    (*_, last) = check({"port": -1})
    assert (last.subject, last.level) == ("settings", "broken")
    assert last.text.startswith("setting 'port' is -1: ")


def test_old_and_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with its bound and the command that mends it."""
    monkeypatch.setattr(packages, "version", lambda name: {"torch": "1.13.1", "peltier": "0.1.0"}.get(name, "99999"))
    lines = ["torch>=2.11", "rich>=15", 'redis>=5; extra == "redis"', 'other>=5; extra == "dev"']
    monkeypatch.setattr(packages, "requires", lambda name: lines)
    found = list(check_packages())
    assert told(found, "broken") == ["packages: torch 1.13.1 is installed, and this release needs torch>=2.11"]
    assert found[0].next_step == 'pip install "torch>=2.11"'
    assert "extras: redis" in found[1].text


def test_a_machine_without_kernels_is_slow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And so is one whose kernels are of other sources; a compiler that is missing is named."""
    monkeypatch.setattr(survey, "library_paths", lambda: [tmp_path / "avx2.so", tmp_path / "plain.so"])
    (tmp_path / "plain.so").write_bytes(b"no library")
    monkeypatch.setenv("CC", "no-such-compiler -O3")
    monkeypatch.setattr(processor, "usable_cores", lambda: 1)
    found = list(check_processor(Settings(threads=4, device="cpu", dtype="float32")))
    slow = told(found, "slow")
    assert slow[0] == "processor: 4 threads share 1 cores and wait for each other"
    assert slow[1] == "kernels: the kernels avx2 for this processor are not used: it was not built"
    assert slow[2].startswith("kernels: the kernels plain for this processor are not used: ")
    assert slow[3].startswith("kernels: there are no native kernels")
    assert any("'no-such-compiler' is not on PATH" in text for text in told(found, "note"))


def test_memory_below_the_settings_is_broken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The smaller of the free memory and the container's limit counts."""
    info, limit = tmp_path / "meminfo", tmp_path / "memory.max"
    info.write_text("MemTotal: 9000 kB\nMemAvailable:    4096 kB\n")
    assert available_bytes(info, limit) == 4096 * 1024
    limit.write_text("max\n")
    assert available_bytes(info, limit) == 4096 * 1024
    limit.write_text("1024\n")
    assert available_bytes(info, limit) == 1024
    monkeypatch.setattr(memory, "available_bytes", lambda: 2**30)
    (text,) = told(check_memory(Settings(device="cpu", dtype="float32")), "broken")
    assert "device_bytes 1.1 GB" in text
    assert text.endswith("this machine or its container has 1.1 GB")


def test_a_backbone_that_is_missing_is_broken(tmp_path: Path) -> None:
    """As the server would find it."""
    (text,) = told(check_memory(Settings(backbone=str(tmp_path / "none"), device="cpu")), "broken")
    assert text.startswith(f"backbone: the backbone '{tmp_path}/none' cannot be read: ")
