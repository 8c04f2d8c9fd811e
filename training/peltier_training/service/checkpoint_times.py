"""The Trainer callback that has checkpoints saved within epochs too."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState

SECONDS_BETWEEN_CHECKPOINTS = 30.0
# Saving takes at most a twentieth of the time.
_PAUSES_OF_A_SAVE = 20


class CheckpointTimes(TrainerCallback):
    """Saves at the end of a step once the last checkpoint is `SECONDS_BETWEEN_CHECKPOINTS` old, or 20 times what a
    checkpoint takes if that is longer, and at the next step once the file `asked` is there.

    It comes after the callbacks that end a training or save at the end of an epoch: what they validate is saved then.
    """

    def __init__(self, asked: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._asked, self._clock = asked, clock
        self._saved_at, self._pause = clock(), SECONDS_BETWEEN_CHECKPOINTS
        # When a checkpoint was begun that this callback wants; None for those that follow a validation.
        self._begun_at: float | None = None

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._saved_at = self._clock()

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        # After a checkpoint of the last step of an epoch the Trainer would begin the next epoch without validating.
        if not control.should_training_stop and not float(state.epoch or 0).is_integer():
            self._save_if_due(control)

    def on_epoch_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if not control.should_save:
            self._save_if_due(control)

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._asked.unlink(missing_ok=True)
        self._saved_at = self._clock()
        if self._begun_at is not None:
            self._pause = max(SECONDS_BETWEEN_CHECKPOINTS, _PAUSES_OF_A_SAVE * (self._saved_at - self._begun_at))
        self._begun_at = None

    def _save_if_due(self, control: TrainerControl) -> None:
        now = self._clock()
        if now - self._saved_at >= self._pause or self._asked.exists():
            self._begun_at = now
            # A resumed training adds up the losses of its own steps only, so those until now are logged.
            control.should_save = control.should_log = True
