"""Early stopping, and the interval between validations."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState

from peltier_training.config.run import Run
from peltier_training.evaluate import metrics

Log = Sequence[Mapping[str, float]]


class Patience(TrainerCallback):
    """Stops a run after `patience` validations without improvement.

    It reads the Trainer's log, which is part of checkpoints, so that a resumed run stops when an uninterrupted one
    does."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def on_evaluate(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Called after the metrics are logged."""
        control.should_training_stop |= is_over(self._run, state.log_history)


def is_over(run: Run, log: Log) -> bool:
    """Whether the last `patience` validations of `log` brought no improvement."""
    patience = run.hyperparameters.patience
    return patience is not None and num_without_improvement(run, log) >= patience


def num_without_improvement(run: Run, log: Log) -> int:
    """The number of validations since the best one, the first of equals."""
    sign = -1.0 if run.metric in metrics.LOWER_IS_BETTER else 1.0
    scores = [sign * entry[f"eval_{run.metric}"] for entry in log if f"eval_{run.metric}" in entry]
    return len(scores) - 1 - scores.index(max(scores)) if scores else 0


class ValidationInterval(TrainerCallback):
    """Validates and saves after every k-th epoch and after the last, where k is the run's `validation_interval`."""

    def __init__(self, run: Run) -> None:
        self._interval = run.hyperparameters.validation_interval or 1

    def on_epoch_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Cancel the Trainer's evaluation and checkpoint of this epoch if they are not due."""
        epoch, last = round(state.epoch or 0), math.ceil(args.num_train_epochs)
        if epoch % self._interval and epoch < last:
            control.should_evaluate = control.should_save = False
