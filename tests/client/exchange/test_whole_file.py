"""Files that are there whole or not at all."""

from pathlib import Path

import pytest
from peltier_client.exchange.whole_file import write_whole

from tests.full_disk import room_for
from tests.power_loss import PowerLoss

OLD, NEW = b"old", bytes(range(256)) * 8192


@pytest.mark.parametrize("before", [None, OLD])
def test_a_write_that_breaks_off_leaves_what_was_there(tmp_path: Path, before: bytes | None) -> None:
    """Nothing half-written under the name, nor beside it."""
    path = tmp_path / "a"
    if before is not None:
        path.write_bytes(before)
    with room_for(len(NEW) // 2), pytest.raises(OSError, match="File too large"):
        write_whole(path, NEW)
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == ({} if before is None else {"a": before})


def test_two_who_write_at_once_do_not_disturb_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is last has its bytes there, and both succeed; what a run of `predict --file` keeps beside it stays."""
    path, kept, replace = tmp_path / "a", tmp_path / "a.part", Path.replace
    kept.write_bytes(OLD)

    def overtake(part: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "replace", replace)
        assert write_whole(path, OLD) == path
        return replace(part, target)

    monkeypatch.setattr(Path, "replace", overtake)
    write_whole(path, NEW)
    assert path.read_bytes() == NEW
    assert (sorted(tmp_path.iterdir()), kept.read_bytes()) == ([path, kept], OLD)


def test_a_write_that_is_done_outlives_a_power_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes and name."""
    power_loss = PowerLoss(monkeypatch)
    write_whole(tmp_path / "a", NEW)
    assert power_loss.left(tmp_path / "a") == NEW
