"""The Hugging Face Trainer for corrupted texts, within a budget."""

import sys
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from peltier_backbone.load import resolve_device
from torch.nn import Parameter
from torch.optim import AdamW
from transformers import (
    PrinterCallback,
    ProgressCallback,
    T5ForConditionalGeneration,
    Trainer,
    TrainerState,
    TrainingArguments,
)

from peltier_training.pretraining.dataset import HeldOutText, TrainingText, collate
from peltier_training.pretraining.pacing import Pacing, PretrainingProgress
from peltier_training.pretraining.run import Pretraining
from peltier_training.pretraining.schedule import BudgetSchedule

_MIN_SCALE = 1e-3  # of parameters that are initialised with 0
_MAX_STEPS = 2**31  # a budget of time ends earlier


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


def _arguments(run: Pretraining) -> TrainingArguments:
    numbers = run.optimization
    arguments = TrainingArguments(
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
