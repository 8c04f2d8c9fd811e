"""When a training is saved, on a clock that the test moves."""

from pathlib import Path

import pytest
from peltier_training.service.observer import CheckpointTimes
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
