"""Evaluation, saving, stopping and progress of a run by its budget."""

import sys
import time
from typing import Any

import torch
from tqdm import tqdm  # type: ignore[import-untyped]
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from peltier_training.pretraining.schedule import BudgetSchedule

_EVALUATIONS = 20


class Pacing(TrainerCallback):
    """Evaluates and saves at each twentieth of the budget, and stops at its end. It also saves and stops `call_seconds`
    after its creation."""

    def __init__(self, call_seconds: float | None) -> None:
        self._deadline = None if call_seconds is None else time.monotonic() + call_seconds
        self._part = 0
        self.finished = False

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Continue with the part of the budget where the previous call stopped."""
        self._part = _part(kwargs["lr_scheduler"])

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Check the budget."""
        schedule = kwargs["lr_scheduler"]
        self.finished = schedule.fraction >= 1
        if (part := _part(schedule)) > self._part:
            self._part = part
            control.should_evaluate = control.should_save = control.should_log = True
        if self.finished or (self._deadline is not None and time.monotonic() >= self._deadline):
            control.should_save = control.should_training_stop = True


class PretrainingProgress(TrainerCallback):
    """A bar over the budget on standard error."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Create the bar at the spent part of the budget."""
        form = "{l_bar}{bar}| {elapsed}<{remaining}{postfix}"
        begin = round(100 * kwargs["lr_scheduler"].fraction, 2)
        print(f"{args.device.type}, CPU threads: {torch.get_num_threads()}", file=sys.stderr)
        self._bar = tqdm(total=100.0, initial=begin, bar_format=form, file=sys.stderr)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Show the part of the budget that is spent."""
        self._bar.update(100 * kwargs["lr_scheduler"].fraction - self._bar.n)

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Show the latest losses."""
        shown = {name: value for name, value in (kwargs["logs"] or {}).items() if name in ("loss", "eval_loss")}
        if shown:
            self._bar.write(f"step {state.global_step}: {shown}", file=sys.stderr)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Close the bar."""
        self._bar.close()


def _part(schedule: BudgetSchedule) -> int:
    return int(_EVALUATIONS * schedule.fraction)
