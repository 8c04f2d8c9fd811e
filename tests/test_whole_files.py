"""Both packages write files atomically; they share no code because neither may import the other."""

from collections.abc import Callable
from pathlib import Path

import pytest
from peltier_adapters.durable import write_file
from peltier_client.exchange.transfer import write_whole

from tests.support.full_disk import room_for
from tests.support.power_loss import PowerLoss

Write = Callable[[Path, bytes], object]
OLD, NEW = b"old", bytes(range(256)) * 8192

pytestmark = pytest.mark.parametrize("write", [write_file, write_whole])


@pytest.mark.parametrize("before", [None, OLD])
def test_a_write_that_breaks_off_leaves_what_was_there(write: Write, tmp_path: Path, before: bytes | None) -> None:
    """Nothing half-written under the name, nor beside it."""
    path = tmp_path / "a"
    if before is not None:
        path.write_bytes(before)
    with room_for(len(NEW) // 2), pytest.raises(OSError, match="File too large"):
        write(path, NEW)
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == ({} if before is None else {"a": before})


def test_the_bytes_have_reached_the_disk_before_they_have_their_name(write, tmp_path, monkeypatch):
    """So that a power loss cannot leave the name without them."""
    path, power_loss = tmp_path / "a", PowerLoss(monkeypatch)
    path.write_bytes(OLD)
    replace, found = Path.replace, []

    def look(partial: Path, target: Path) -> Path:
        found.extend((path.read_bytes(), power_loss.written(partial)))
        return replace(partial, target)

    monkeypatch.setattr(Path, "replace", look)
    write(path, NEW)
    assert found == [OLD, NEW]
    assert path.read_bytes() == NEW


@pytest.mark.parametrize("before", [None, OLD])
def test_a_write_that_is_done_outlives_a_power_loss(write, tmp_path, monkeypatch, before):
    """Its name too, which is an entry of the folder."""
    path, power_loss = tmp_path / "a", PowerLoss(monkeypatch)
    if before is not None:
        path.write_bytes(before)
    write(path, NEW)
    assert power_loss.left(path) == NEW


def test_two_who_write_at_once_do_not_disturb_each_other(write, tmp_path, monkeypatch):
    """Both succeed, and the last one's bytes remain; the part file of `predict --file` stays."""
    path, kept, replace = tmp_path / "a", tmp_path / "a.part", Path.replace
    kept.write_bytes(OLD)

    def overtake(partial: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "replace", replace)
        write(path, OLD)
        return replace(partial, target)

    monkeypatch.setattr(Path, "replace", overtake)
    write(path, NEW)
    assert path.read_bytes() == NEW
    assert (sorted(tmp_path.iterdir()), kept.read_bytes()) == ([path, kept], OLD)
