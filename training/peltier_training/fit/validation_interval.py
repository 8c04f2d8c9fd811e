"""The interval between validations."""

import math
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState

from peltier_training.config.run import Run


class ValidationInterval(TrainerCallback):
    """Validates and saves after every k-th epoch and after the last, where k is the run's `validation_interval`."""

    def __init__(self, run: Run) -> None:
        self._interval = run.hyperparameters.validation_interval or 1

    def on_epoch_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Cancel the Trainer's evaluation and checkpoint of this epoch if they are not due."""
        epoch, last = round(state.epoch or 0), math.ceil(args.num_train_epochs)
        if epoch % self._interval and epoch < last:
            control.should_evaluate = control.should_save = False
