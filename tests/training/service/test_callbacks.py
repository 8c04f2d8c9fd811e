"""When a training is saved, on a clock that the test moves."""

import io
import json
import tarfile
from pathlib import Path

import pytest
from peltier_training.errors import TrainingError
from peltier_training.service import callbacks
from peltier_training.service.callbacks import CheckpointTimes, pack, unpack
from transformers import TrainerControl, TrainerState


class Steps:
    """A training of epochs of 8 steps, 10 s each; a checkpoint takes `save_seconds`."""

    def __init__(self, asked: Path, save_seconds: float = 0.0) -> None:
        self.now, self._save_seconds = 100.0, save_seconds
        self._times = CheckpointTimes(asked, lambda: self.now)
        self._state = TrainerState()
        self._times.on_train_begin(None, self._state, TrainerControl())

    def walk(self, steps: int, *, validates: bool = True) -> list[int]:
        """The steps after which there is a checkpoint, those of validations too."""
        saved = []
        for _ in range(steps):
            self.now += 10
            self._state.global_step += 1
            self._state.epoch = self._state.global_step / 8
            control = TrainerControl()
            self._times.on_step_end(None, self._state, control)
            if self._state.global_step % 8 == 0:
                assert not control.should_save
                control.should_save = validates
                self._times.on_epoch_end(None, self._state, control)
            if control.should_save:
                assert control.should_log or self._state.global_step % 8 == 0
                self.now += self._save_seconds
                self._times.on_save(None, self._state, control)
                saved.append(self._state.global_step)
        return saved


def test_a_training_is_saved_every_30_seconds(tmp_path: Path):
    """The last step of an epoch is saved after its validation, or without one if none is due."""
    assert Steps(tmp_path / "asked").walk(18) == [3, 6, 8, 11, 14, 16]
    assert Steps(tmp_path / "asked").walk(18, validates=False) == [3, 6, 9, 12, 15, 18]


def test_saving_takes_a_twentieth_of_the_time(tmp_path: Path):
    """A checkpoint of 4 s is made every 80 s."""
    assert Steps(tmp_path / "asked", save_seconds=4).walk(24, validates=False) == [3, 11, 19]


@pytest.mark.parametrize("step", [1, 8])
def test_a_checkpoint_that_is_asked_for_is_made_at_the_next_step(tmp_path: Path, step: int):
    """Once; one of a validation answers too."""
    asked = tmp_path / "asked"
    steps = Steps(asked)
    steps.walk(step - 1)
    steps._times._saved_at = steps.now
    asked.touch()
    assert steps.walk(1) == [step]
    assert not asked.exists()


def test_a_training_that_ends_is_saved_by_its_last_validation(tmp_path: Path):
    """Not before it, because the epoch would not be validated."""
    (tmp_path / "asked").touch()
    control = TrainerControl(should_training_stop=True)
    CheckpointTimes(tmp_path / "asked").on_step_end(None, TrainerState(epoch=0.5), control)
    assert not control.should_save


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
    monkeypatch.setattr(callbacks, "MAX_BYTES", 10)
    with pytest.raises(TrainingError, match=r"^the checkpoint has 11 bytes; at most 10 are read$"):
        unpack(archive(**{"checkpoint-1/a": b"x" * 11}), tmp_path)
