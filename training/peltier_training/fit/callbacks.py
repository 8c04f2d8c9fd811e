"""Callbacks of the Trainer: early stopping, the interval between validations, and a run's progress."""

import math
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tqdm import tqdm  # type: ignore[import-untyped]
from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerCallback, TrainerControl, TrainerState
from transformers import TrainingArguments as Arguments

from peltier_training.config.run import LOWER_IS_BETTER, Run

Log = Sequence[Mapping[str, float]]
_BAR = "{percentage:3.0f}% |{bar}| step {n_fmt}/{total_fmt}, {elapsed} elapsed, {remaining} left"


class Patience(TrainerCallback):
    """Stops a run after `patience` validations without improvement.

    It reads the Trainer's log, which is part of checkpoints, so that a resumed run stops when an uninterrupted one
    does."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def on_evaluate(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        control.should_training_stop |= is_over(self._run, state.log_history)


def is_over(run: Run, log: Log) -> bool:
    """Whether the last `patience` validations of `log` brought no improvement."""
    patience = run.hyperparameters.patience
    return patience is not None and num_without_improvement(run, log) >= patience


def num_without_improvement(run: Run, log: Log) -> int:
    """The number of validations since the best one, the first of equals."""
    sign = -1.0 if run.metric in LOWER_IS_BETTER else 1.0
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


class TrainingProgress(TrainerCallback):
    """Writes to stderr in the first of several processes."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._bar: tqdm | None = None
        self._since = time.perf_counter()

    def replace_prints(self, trainer: Trainer) -> None:
        for callback in (ProgressCallback, PrinterCallback):
            trainer.remove_callback(callback)
        trainer.add_callback(self)

    def on_train_begin(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        self._bar = tqdm(
            total=state.max_steps,
            initial=state.global_step,
            bar_format=_BAR,
            file=sys.stderr,
            leave=False,
            disable=not sys.stderr.isatty(),
        )
        self._since = time.perf_counter()
        begun = f", from step {state.global_step} on" if state.global_step else ""
        rows = len(kwargs["train_dataloader"].dataset)
        run = self._run
        self._write(
            f"training on {rows} rows: {run.epochs} epochs, {state.max_steps} steps{begun}, "
            f"batch size {run.batch_size}, learning rate {run.learning_rate:g}"
        )
        self._write(f"on {args.device.type} in {run.dtype}, CPU threads: {torch.get_num_threads()}")

    def on_step_end(self, args: Arguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        control.should_log |= control.should_evaluate
        if self._bar is not None:
            self._bar.update(state.global_step - self._bar.n)

    def on_epoch_end(self, args: Arguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Have the loss logged up to this step, so that the next line includes it."""
        control.should_log |= control.should_evaluate

    def on_evaluate(self, args: Arguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self._bar is not None:
            now = time.perf_counter()
            self._write(f"{self._describe(state)}  {now - self._since:.1f} s{self._mark(state)}")
            self._since = now

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def _write(self, line: str) -> None:
        tqdm.write(line, file=sys.stderr)

    def _describe(self, state: TrainerState) -> str:
        log, metric = state.log_history, self._run.metric
        parts = [f"epoch {state.epoch:.4g}/{state.num_train_epochs}", f"step {state.global_step}/{state.max_steps}"]
        if (loss := recent_loss(log)) is not None:
            parts.append(f"loss {loss:.4f}")
        parts.append(f"{metric} {log[-1][f'eval_{metric}']:.4f}")
        if (rate := _last(log, "learning_rate")) is not None:
            parts.append(f"rate {rate:.1e}")
        return "  ".join(parts)

    def _mark(self, state: TrainerState) -> str:
        return "  best" if num_without_improvement(self._run, state.log_history) == 0 else ""


def recent_loss(log: Log) -> float | None:
    """The mean training loss of the steps between the last two evaluations of `log`, None if no loss was logged. Each
    entry is the mean over the steps since the previous one."""
    places = [place for place, entry in enumerate(log) if _is_evaluation(entry)]
    first = places[-2] if len(places) > 1 else -1
    step, weight, total = (log[first]["step"] if first >= 0 else 0.0), 0.0, 0.0
    for entry in log[first + 1 :]:
        if "loss" in entry:
            steps, step = entry["step"] - step, entry["step"]
            weight, total = weight + steps, total + steps * entry["loss"]
    return total / weight if weight else None


def _is_evaluation(entry: Mapping[str, float]) -> bool:
    return any(name.startswith("eval_") for name in entry)


def _last(log: Log, name: str) -> float | None:
    return next((entry[name] for entry in reversed(log) if name in entry), None)
