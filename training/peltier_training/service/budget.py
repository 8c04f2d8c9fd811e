"""From a request to its run within a budget, in steps or minutes, and the callback that stops there."""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.checkpoint.config import load_config
from transformers import TrainerCallback, TrainerControl, TrainerState

from peltier_training.config.preparation import Prepared, fill_in, prepare
from peltier_training.config.run import Run
from peltier_training.fit.schedule import DECAY_SHARE, budget_entry, find_budget_decay, find_decay
from peltier_training.fit.trainer import History
from peltier_training.service.examples import split_file
from peltier_training.service.request import Budget, Machine, RequestedTraining, create_run


def prepare_request(
    request: RequestedTraining, train: Path, validation: Path | None, machine: Machine, *, resume: bool = False
) -> Prepared:
    """The run of a request with its files in the current directory; without `validation` a share of the others
    validates. Raises a `TrainingError` or an `AdapterError`, about the request before any row is read."""
    data = request.data(train, validation or train)
    run = create_run(request, data, machine, resume=resume)
    run.check()
    if validation is None:
        data = split_file(data, request.task_type, request.validation_share, request.seed)
        run = replace(run, data=data)
    return within_steps(run, prepare(run), request.budget.steps)


def within_steps(asked: Run, prepared: Prepared, steps: int | None) -> Prepared:
    """The run whose schedule ends at step `steps`, if it would be longer: the learning rate falls until then.

    `asked` is the run before its defaults were filled in."""
    run, rows = prepared.run, len(prepared.data.train.examples)
    per_epoch = math.ceil(rows / run.batch_size)
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
    Within a budget in minutes it starts the decay of the learning rate (`fit.schedule`).

    `spent` is the time of earlier attempts in seconds."""

    def __init__(self, run: Run, budget: Budget, spent: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._run, self._budget, self._clock = run, budget, clock
        self._start = clock() - spent
        self._first_step, self._begun = 0, self._start
        self._is_reached = False

    @property
    def seconds_left(self) -> float:
        """Until the budget is used up."""
        return max(self._seconds - (self._clock() - self._start), 0.0)

    @property
    def _seconds(self) -> float:
        return math.inf if self._budget.minutes is None else 60 * self._budget.minutes

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self._first_step, self._begun = state.global_step, self._clock()
        self._is_reached = self._is_over(state)

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if 0 < self.seconds_left <= (1 - DECAY_SHARE) * self._seconds < math.inf:
            self._start_decay(state)
        if self._is_over(state):
            self._is_reached = control.should_training_stop = True

    def _start_decay(self, state: TrainerState) -> None:
        """Have the rate fall from this step on, if it would not be 0 before the budget is used up."""
        step, begun = state.global_step, self._begun
        steps_left = int(self.seconds_left * (step - self._first_step) / max(self._clock() - begun, 1e-9))
        end = step + max(steps_left, 1)
        if find_decay(self._run, state.log_history) is None and end < state.max_steps:
            state.log_history.append(budget_entry(step, state.epoch or 0.0, end))

    def _is_over(self, state: TrainerState) -> bool:
        steps, decay = self._budget.steps, find_budget_decay(state.log_history)
        last = min(math.inf if steps is None else steps, math.inf if decay is None else decay.end)
        return self.seconds_left <= 0 or state.global_step >= last

    def explain(self, history: History) -> History:
        """The history with the budget as the reason for its end, if it was."""
        if not self._is_reached:
            return history
        used = f"{self._budget.steps} steps" if self._budget.minutes is None else f"{self._budget.minutes:g} minutes"
        return replace(history, ending=f"the budget of {used} is used up", has_converged=False)
