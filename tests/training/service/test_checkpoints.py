"""Checkpoints that travel."""

import io
import json
import tarfile
from pathlib import Path

import pytest
from peltier_training.errors import TrainingError
from peltier_training.service import checkpoints
from peltier_training.service.checkpoints import pack, unpack


def write(directory: Path, step: int, best: int) -> None:
    folder = directory / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"weights of %d" % step)
    (folder / "optimizer.pt").write_bytes(b"moments")
    (folder / "trainer_state.json").write_text(json.dumps({"best_model_checkpoint": f"run/checkpoint-{best}"}))


def archive(**members: bytes) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as file:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
    return data.getvalue()


def test_the_newest_checkpoint_travels_with_the_best_weights(tmp_path: Path):
    """The Trainer looks for both; the same files are the same bytes."""
    for step in (3, 6, 12):
        write(tmp_path / "a", step, best=6)
    data = pack(tmp_path / "a")
    unpack(data, tmp_path / "b")
    found = sorted(str(path.relative_to(tmp_path / "b")) for path in (tmp_path / "b").rglob("*") if path.is_file())
    newest = [f"checkpoint-12/{name}" for name in ("model.safetensors", "optimizer.pt", "trainer_state.json")]
    assert found == [*newest, "checkpoint-6/model.safetensors"]
    assert (tmp_path / "b/checkpoint-6/model.safetensors").read_bytes() == b"weights of 6"
    assert pack(tmp_path / "b") == data


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "checkpoint-1/../../evil", "checkpoint-1/.hidden", "evil"])
def test_only_files_of_checkpoints_are_unpacked(tmp_path: Path, name: str):
    """Nothing is written if one of them is not."""
    with pytest.raises(TrainingError, match="which is not a file of a checkpoint"):
        unpack(archive(**{"checkpoint-1/a": b"", name: b"evil"}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_links_and_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also bytes that are no archive."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as file:
        link = tarfile.TarInfo("checkpoint-1/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        file.addfile(link)
    with pytest.raises(TrainingError, match=r"^the checkpoint has 'checkpoint-1/link', which is not a file"):
        unpack(data.getvalue(), tmp_path)
    with pytest.raises(TrainingError, match=r"^the checkpoint cannot be read: "):
        unpack(b"no archive" * 100, tmp_path)
    monkeypatch.setattr(checkpoints, "MAX_BYTES", 10)
    with pytest.raises(TrainingError, match=r"^the checkpoint has 11 bytes; at most 10 are read$"):
        unpack(archive(**{"checkpoint-1/a": b"x" * 11}), tmp_path)
