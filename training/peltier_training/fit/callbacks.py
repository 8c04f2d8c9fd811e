"""Callbacks of the Trainer: early stopping, the interval between validations, and a run's progress."""

import math
import sys
import time
from collections.abc import Mapping
from typing import Any

import torch
from tqdm import tqdm  # type: ignore[import-untyped]
from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerCallback, TrainerControl, TrainerState
from transformers import TrainingArguments as Arguments

from peltier_training.config.run import Run
from peltier_training.fit.schedule import Log, find_decay, is_best, is_over, no_improvement, patience_text, why_ended

_BAR = "{percentage:3.0f}% |{bar}| step {n_fmt}/{total_fmt}, {elapsed} elapsed, {remaining} left"
_OPEN_BAR = _BAR.replace("{remaining}", "at most {remaining}")


class Validations(TrainerCallback):
    """Validates and saves after every k-th epoch and after the last, where k is the run's `validation_interval`, and
    ends a run early when its schedule says so."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def on_epoch_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Cancel the Trainer's evaluation and checkpoint of this epoch if they are not due."""
        epoch, last = round(state.epoch or 0), math.ceil(args.num_train_epochs)
        is_last = epoch >= last or control.should_training_stop
        if epoch % (self._run.hyperparameters.validation_interval or 1) and not is_last:
            control.should_evaluate = control.should_save = False

    def on_evaluate(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        control.should_training_stop |= is_over(self._run, state.log_history)


class ProgressLines(TrainerCallback):
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
            bar_format=_OPEN_BAR if self._run.hyperparameters.open_end else _BAR,
            file=sys.stderr,
            leave=False,
            disable=not (sys.stderr.isatty() or "ipykernel" in sys.modules),  # a terminal or a notebook
        )
        self._since = time.perf_counter()
        begun = f", from step {state.global_step} on" if state.global_step else ""
        rows = len(kwargs["train_dataloader"].dataset)
        run = self._run
        length = f"{run.epochs} epochs, {state.max_steps} steps"
        numbers = f"batch size {run.batch_size}, learning rate {run.learning_rate:g}"
        if run.hyperparameters.open_end:
            self._write(f"training on {rows} rows{begun}, {numbers}")
            self._write(f"until {run.metric} has not improved in {patience_text(run)}, at most {length}")
        else:
            self._write(f"training on {rows} rows: {length}{begun}, {numbers}")
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
            self._show_decay(self._bar, state)

    def on_train_end(self, args: Arguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self._bar is not None:
            self._write(f"ended after epoch {state.epoch:.4g}: {why_ended(self._run, state.log_history)}")

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def _show_decay(self, bar: tqdm, state: TrainerState) -> None:
        """Write when the learning rate starts to fall, which determines the last step."""
        decay = find_decay(self._run, state.log_history)
        if decay is not None and bar.total != decay.end:
            bar.total, bar.bar_format = decay.end, _BAR
            reason = "the end is near" if decay.is_forced else no_improvement(self._run, state.log_history)
            self._write(f"{reason}: the rate falls to 0 until epoch {decay.last_epoch}, step {decay.end}")

    def _write(self, line: str) -> None:
        tqdm.write(line, file=sys.stderr)

    def _describe(self, state: TrainerState) -> str:
        log, metric = state.log_history, self._run.metric
        epochs, steps = self._totals(state)
        parts = [f"epoch {state.epoch:.4g}{epochs}", f"step {state.global_step}{steps}"]
        if (loss := recent_loss(log)) is not None:
            parts.append(f"loss {loss:.4f}")
        parts.append(f"{metric} {log[-1][f'eval_{metric}']:.4f}")
        if (rate := _last(log, "learning_rate")) is not None:
            parts.append(f"rate {rate:.1e}")
        return "  ".join(parts)

    def _totals(self, state: TrainerState) -> tuple[str, str]:
        """The last epoch and step as they are shown; of an open end they are unknown until the learning rate falls."""
        if not self._run.hyperparameters.open_end:
            return f"/{state.num_train_epochs}", f"/{state.max_steps}"
        decay = find_decay(self._run, state.log_history)
        return ("", "") if decay is None else (f"/{decay.last_epoch}", f"/{decay.end}")

    def _mark(self, state: TrainerState) -> str:
        return "  best" if is_best(self._run, state.log_history) else ""


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
