"""When a training is saved and when its minutes are used up, on clocks that the tests move."""

import io
import json
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from peltier_backbone import load
from peltier_backbone.linear.linear import PlainLinear
from peltier_training.config.preparation import prepare
from peltier_training.config.run import Run
from peltier_training.errors import TrainingError
from peltier_training.fit.schedule import budget_entry, find_budget_decay, is_over, rate_factor
from peltier_training.service import callbacks
from peltier_training.service.callbacks import CheckpointTimes, Deadline, pack, unpack
from peltier_training.service.request import Budget
from peltier_training.train import finish, learn
from safetensors.numpy import load_file
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from tests.training.conftest import MakeRun, keep_checkpoints


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


class StepClock(TrainerCallback):
    """A clock on which every step takes `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self.now = seconds, 100.0

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.now += self._seconds

    def __call__(self) -> float:
        return self.now


def _walk(run: Run, *, minutes: float, max_steps: int, steps: int) -> tuple[TrainerState, TrainerControl]:
    """The state after so many steps of a second each, three in an epoch."""
    clock, state, control = StepClock(1), TrainerState(max_steps=max_steps), TrainerControl()
    deadline, args = Deadline(run, Budget(minutes=minutes), 0.0, clock), TrainingArguments(use_cpu=True, report_to=[])
    deadline.on_train_begin(args, state, control)
    for step in range(1, steps + 1):
        state.global_step, state.epoch = step, step / 3
        clock.on_step_end(args, state, control)
        deadline.on_step_end(args, state, control)
    return state, control


@pytest.mark.parametrize("given", [{"epochs": 20}, {"epochs": 20, "open_end": True, "patience": 5}])
def test_the_rate_falls_to_0_within_the_minutes(make_run: MakeRun, given: dict[str, Any]):
    """From three quarters of them on, from what it was to 0, whether or not the end is open."""
    run = make_run(**given)
    state, control = _walk(run, minutes=20 / 60, max_steps=60, steps=15)
    assert not control.should_training_stop
    log = state.log_history
    assert log == [budget_entry(15, 5.0, 20)]
    factors = [rate_factor(run, log, step, 0, 60) for step in (15, 16, 19, 20, 21)]
    first = 1.0 if run.hyperparameters.open_end else 0.75
    assert factors == pytest.approx([first * share for share in (1, 0.8, 0.2, 0, 0)])
    assert not is_over(run, [*log, {"step": 19, "eval_accuracy": 1.0}])
    assert is_over(run, [*log, {"step": 20, "eval_accuracy": 1.0}])


def test_a_schedule_that_ends_in_time_stays(make_run: MakeRun):
    """Its rate is 0 before the minutes are used up."""
    state, control = _walk(make_run(epochs=6), minutes=20 / 60, max_steps=18, steps=17)
    assert not state.log_history
    assert not control.should_training_stop


@pytest.mark.slow
def test_a_run_within_minutes_resumes_exactly(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """From a checkpoint in its decay: the log has its end, whatever the speed is then."""
    monkeypatch.setattr(load, "choose_linear", lambda *_: PlainLinear)  # the choice by time may differ from run to run
    monkeypatch.setattr(StepClock, "on_save", keep_checkpoints(kept := tmp_path / "kept"), raising=False)
    run, minutes = make_run(epochs=12), 26 / 60
    whole, ending = _train(run, minutes, StepClock(1), 0.0)
    assert ending == "the budget of 0.433333 minutes is used up"
    for late in (24, 26):
        shutil.rmtree(kept / f"checkpoint-{late}")
    shutil.rmtree(run.directory)
    shutil.copytree(kept, run.directory)
    again, ending = _train(replace(run, resume=True), minutes, StepClock(0.1), 21.0)
    assert ending == "the budget of 0.433333 minutes is used up"
    assert all(np.array_equal(again[name], tensor) for name, tensor in whole.items())


def _train(run: Run, minutes: float, clock: StepClock, spent: float) -> tuple[dict[str, Any], str]:
    """The artifact's tensors, and why it ended. Steps 20 to 26 are the decay."""
    deadline = Deadline(run, Budget(minutes=minutes), spent, clock)
    learned = learn(prepare(run), (clock, deadline))
    decay = find_budget_decay(learned.history.log)
    assert (decay.start, decay.end, learned.history.log[-1]["step"]) == (20, 26, 26)
    finish(learned)
    return load_file(run.output), deadline.explain(learned.history).ending
