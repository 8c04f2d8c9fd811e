"""The budget of a training, in steps or minutes: what it changes in a run, and the callback that stops at it."""

import math
import time
from dataclasses import replace
from typing import Any

from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.checkpoint.config import load_config
from transformers import TrainerCallback, TrainerControl, TrainerState

from peltier_training.config.preparation import Prepared, fill_in
from peltier_training.config.run import Run
from peltier_training.fit.trainer import History
from peltier_training.service.request import Budget


def steps_per_epoch(run: Run, num_rows: int) -> int:
    return math.ceil(num_rows / run.batch_size)


def within_steps(asked: Run, prepared: Prepared, steps: int | None) -> Prepared:
    """The run whose schedule ends at step `steps`, if it would be longer: the learning rate falls until then.

    `asked` is the run before its defaults were filled in."""
    run, rows = prepared.run, len(prepared.data.train.examples)
    per_epoch = steps_per_epoch(run, rows)
    if steps is None or steps >= run.epochs * per_epoch:
        return prepared
    filled = run.hyperparameters
    numbers = replace(
        asked.hyperparameters,
        metric=filled.metric,
        batch_size=filled.batch_size,
        epochs=math.ceil(steps / per_epoch),
        max_steps=steps,
        eval_rows=filled.eval_rows,
        validation_interval=filled.validation_interval,
    )
    config = load_config(find_checkpoint(run.backbone))
    return replace(prepared, run=fill_in(replace(run, hyperparameters=numbers), config, rows))


class Deadline(TrainerCallback):
    """Stops a training at its budget. The rest of the epoch is left out, and what was learned until then is validated.

    `spent` is the time of earlier attempts in seconds."""

    def __init__(self, budget: Budget, spent: float) -> None:
        self._budget = budget
        self._start = time.monotonic() - spent
        self._is_reached = False

    @property
    def seconds_left(self) -> float:
        """Until the budget is used up."""
        most = math.inf if self._budget.minutes is None else 60 * self._budget.minutes
        return max(most - (time.monotonic() - self._start), 0.0)

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        steps = self._budget.steps
        if self.seconds_left <= 0 or (steps is not None and state.global_step >= steps):
            self._is_reached = control.should_training_stop = True

    def explain(self, history: History) -> History:
        """The history with the budget as the reason for its end, if it was."""
        if not self._is_reached:
            return history
        used = f"{self._budget.steps} steps" if self._budget.minutes is None else f"{self._budget.minutes:g} minutes"
        return replace(history, ending=f"the budget of {used} is used up", has_converged=False)
