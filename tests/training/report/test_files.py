"""Where reports lie and how they get there."""

from pathlib import Path

import pytest
from peltier_training.errors import TrainingError
from peltier_training.report.files import report_paths, write_file

from tests.support.full_disk import room_for


def test_reports_lie_beside_their_artifact():
    """Two artifacts in one folder have reports of their own, dots in their names or not."""
    one, other = report_paths(Path("a/sst2.v1.safetensors")), report_paths(Path("a/sst2.v2"))
    assert one == (Path("a/sst2.v1.report.json"), Path("a/sst2.v1.report.html"))
    assert other == (Path("a/sst2.v2.report.json"), Path("a/sst2.v2.report.html"))


def test_a_file_is_replaced_in_one_step(tmp_path: Path):
    """A write that breaks off leaves what was there, and nothing beside it."""
    path = tmp_path / "a"
    write_file(path, b"old")
    with room_for(1000), pytest.raises(TrainingError, match="a cannot be written: File too large"):
        write_file(path, bytes(2000))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_is_explained(tmp_path: Path):
    """One sentence, and nothing half-written stays."""
    (tmp_path / "taken").mkdir()
    with pytest.raises(TrainingError, match="taken cannot be written: Is a directory"):
        write_file(tmp_path / "taken", b"data")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
