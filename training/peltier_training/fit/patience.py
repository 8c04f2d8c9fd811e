"""When a training has gone on in vain for long enough."""

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState

from peltier_training.config.run import Run
from peltier_training.evaluate import metrics

Log = Sequence[Mapping[str, float]]


class Patience(TrainerCallback):
    """Ends a run after `patience` validations without a better one.

    It reads the Trainer's log, which checkpoints hold: a resumed run waits for as long as one without a break."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def on_evaluate(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """The epoch's metrics have been logged."""
        control.should_training_stop |= is_over(self._run, state.log_history)


def is_over(run: Run, log: Log) -> bool:
    """Whether the last validations of `log`, as many as the run has patience for, were no better than one before
    them."""
    patience = run.hyperparameters.patience
    return patience is not None and num_in_vain(run, log) >= patience


def num_in_vain(run: Run, log: Log) -> int:
    """Validations since the first of the best ones."""
    sign = -1.0 if run.metric in metrics.LOWER_IS_BETTER else 1.0
    scores = [sign * entry[f"eval_{run.metric}"] for entry in log if f"eval_{run.metric}" in entry]
    return len(scores) - 1 - scores.index(max(scores)) if scores else 0
