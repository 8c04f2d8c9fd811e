"""The Hugging Face Trainer for corrupted texts, within a budget of steps or of time, by which it sets the learning
rate, evaluates, saves and stops."""

import math
import sys
import time
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import torch
from peltier_backbone.load import resolve_device
from torch.nn import Parameter
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler
from tqdm import tqdm  # type: ignore[import-untyped]
from transformers import (
    PrinterCallback,
    ProgressCallback,
    T5ForConditionalGeneration,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
)
from transformers import TrainingArguments as Arguments

from peltier_training.pretraining.dataset import HeldOutText, TrainingText, collate
from peltier_training.pretraining.run import Pretraining, PretrainingBudget

_EVALUATIONS = 20
_MIN_SCALE = 1e-3  # of parameters that are initialised with 0
_MAX_STEPS = 2**31  # a budget of time ends earlier


class BudgetSchedule(LRScheduler):
    """A linear rise over the fraction `warmup` of the budget, then a cosine decay to zero at its end.

    For a budget in minutes it counts the time since its creation and that of earlier calls, which is part of its state,
    so that the rate reaches zero in time whatever the machine's speed."""

    def __init__(self, optimizer: Optimizer, budget: PretrainingBudget, warmup: float) -> None:
        self._budget, self._warmup = budget, warmup
        self._earlier_seconds, self._began = 0.0, time.monotonic()
        super().__init__(optimizer)

    @property
    def seconds(self) -> float:
        return self._earlier_seconds + time.monotonic() - self._began

    @property
    def fraction(self) -> float:
        """The spent part of the budget, from 0 to 1."""
        if self._budget.steps is not None:
            return min(self.last_epoch / self._budget.steps, 1.0)
        assert self._budget.minutes is not None
        return min(self.seconds / (60 * self._budget.minutes), 1.0)

    def get_lr(self) -> list[float | Any]:
        factor = rate_at(self.fraction, self._warmup)
        return [base * factor for base in self.base_lrs]

    def state_dict(self) -> dict[str, Any]:
        """The step and the time spent, independent of the machine's clock."""
        return {"last_epoch": self.last_epoch, "seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.last_epoch = state_dict["last_epoch"]
        self._earlier_seconds, self._began = state_dict["seconds"], time.monotonic()


def rate_at(fraction: float, warmup: float) -> float:
    """The rate after `fraction` of the budget, relative to the highest."""
    if fraction < warmup:
        return fraction / warmup
    return 0.5 * (1 + math.cos(math.pi * (fraction - warmup) / (1 - warmup)))


class Pacing(TrainerCallback):
    """Evaluates and saves at each twentieth of the budget, and stops at its end. It also saves and stops `call_seconds`
    after its creation."""

    def __init__(self, call_seconds: float | None) -> None:
        self._deadline = None if call_seconds is None else time.monotonic() + call_seconds
        self._part = 0
        self.finished = False

    def on_train_begin(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._part = _part(kwargs["lr_scheduler"])

    def on_step_end(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        schedule = kwargs["lr_scheduler"]
        self.finished = schedule.fraction >= 1
        if (part := _part(schedule)) > self._part:
            self._part = part
            control.should_evaluate = control.should_save = control.should_log = True
        if self.finished or (self._deadline is not None and time.monotonic() >= self._deadline):
            control.should_save = control.should_training_stop = True


class PretrainingProgress(TrainerCallback):
    """A bar over the budget on standard error."""

    def on_train_begin(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        form = "{l_bar}{bar}| {elapsed}<{remaining}{postfix}"
        begin = round(100 * kwargs["lr_scheduler"].fraction, 2)
        print(f"{args.device.type}, CPU threads: {torch.get_num_threads()}", file=sys.stderr)
        self._bar = tqdm(total=100.0, initial=begin, bar_format=form, file=sys.stderr)

    def on_step_end(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._bar.update(100 * kwargs["lr_scheduler"].fraction - self._bar.n)

    def on_log(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        shown = {name: value for name, value in (kwargs["logs"] or {}).items() if name in ("loss", "eval_loss")}
        if shown:
            self._bar.write(f"step {state.global_step}: {shown}", file=sys.stderr)

    def on_train_end(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._bar.close()


def _part(schedule: BudgetSchedule) -> int:
    return int(_EVALUATIONS * schedule.fraction)


def num_examples(run: Pretraining) -> int:
    """The maximum number of examples within the budget."""
    return (run.budget.steps or _MAX_STEPS) * run.optimization.batch_size


def scaled_groups(parameters: Iterable[Parameter], learning_rate: float) -> list[dict[str, Any]]:
    """A group for each parameter, with `learning_rate` times the root mean square of its initial values as its rate.

    T5's matrices have very different initial sizes: embeddings 1, queries 1 / sqrt(d_model d_kv). One rate for all is
    too small for the former and too large for the latter. The paper's Adafactor (Raffel et al. 2020, section 3.1.2;
    Shazeer and Stern 2018, section 8) scales its steps in the same way."""
    return [
        {"params": [weights], "lr": learning_rate * max(weights.detach().square().mean().sqrt().item(), _MIN_SCALE)}
        for weights in parameters
    ]


def fit(
    run: Pretraining,
    model: T5ForConditionalGeneration,
    data: tuple[TrainingText, HeldOutText],
    pacing: Pacing,
    checkpoint: Path | None,
) -> TrainerState:
    """Train `model` on `data[0]` from `checkpoint` until the budget or this call ends, and evaluate on `data[1]`.

    Returns the Trainer's state, with the log of all calls."""
    numbers = run.optimization
    optimizer = AdamW(
        scaled_groups(model.parameters(), numbers.learning_rate),
        betas=(0.9, 0.98),
        weight_decay=numbers.weight_decay,
        fused=True,
    )
    schedule = BudgetSchedule(optimizer, run.budget, numbers.warmup)
    trainer = Trainer(
        model=model,
        args=_arguments(run),
        data_collator=collate,
        train_dataset=data[0],
        eval_dataset=data[1],
        optimizers=(optimizer, schedule),  # type: ignore[arg-type]  # any schedule does
        callbacks=[pacing, PretrainingProgress()],
    )
    for callback in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(callback)
    with redirect_stdout(sys.stderr):  # progress goes to stderr, the result to stdout
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    return trainer.state


def _arguments(run: Pretraining) -> Arguments:
    numbers = run.optimization
    arguments = Arguments(
        output_dir=str(run.directory),
        max_steps=run.budget.steps or _MAX_STEPS,
        per_device_train_batch_size=numbers.batch_size,
        per_device_eval_batch_size=numbers.batch_size,
        train_sampling_strategy="sequential",  # `TrainingText` draws the order
        max_grad_norm=1.0,
        seed=numbers.seed,
        eval_strategy="no",  # `Pacing` decides when to evaluate and save
        save_strategy="no",
        save_total_limit=2,
        logging_steps=50,
        report_to=["tensorboard"],
        remove_unused_columns=False,
        label_names=["labels"],
        prediction_loss_only=True,
        dataloader_pin_memory=False,
        use_cpu=resolve_device(run.device).type == "cpu",
        bf16=run.dtype == "bfloat16",
    )
    arguments._n_gpu = min(arguments.n_gpu, 1)  # one process uses one device
    return arguments
