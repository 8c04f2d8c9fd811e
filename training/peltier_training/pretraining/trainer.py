"""The Hugging Face Trainer over corrupted texts, within a budget."""

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
from peltier_training.pretraining.pacing import Pacing, Progress
from peltier_training.pretraining.run import Pretraining
from peltier_training.pretraining.schedule import BudgetSchedule

_SMALLEST = 1e-3  # scale, of what begins at 0
_ENDLESS = 2**31  # steps: a budget of time ends before


def num_examples(run: Pretraining) -> int:
    """As many as the budget can take."""
    return (run.budget.steps or _ENDLESS) * run.optimization.batch_size


def scaled_groups(parameters: Iterable[Parameter], learning_rate: float) -> list[dict[str, Any]]:
    """A group for each parameter, whose rate is `learning_rate` times the root mean square that it begins with.

    T5's matrices begin at very different sizes: embeddings at 1, queries at 1 / sqrt(d_model d_kv). One rate for all is
    too small for the former and drowns the latter. The paper's Adafactor (Raffel et al. 2020, section 3.1.2; Shazeer
    and Stern 2018, section 8) scales its steps so too."""
    return [
        {"params": [one], "lr": learning_rate * max(one.detach().square().mean().sqrt().item(), _SMALLEST)}
        for one in parameters
    ]


def fit(
    run: Pretraining,
    model: T5ForConditionalGeneration,
    data: tuple[TrainingText, HeldOutText],
    pacing: Pacing,
    checkpoint: Path | None,
) -> TrainerState:
    """Train `model` on `data[0]` until the budget or this call ends, from `checkpoint` on, with the loss on `data[1]`
    measured on the way; returns the Trainer's state, with all that was logged, in earlier calls too."""
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
        callbacks=[pacing, Progress()],
    )
    for callback in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(callback)
    with redirect_stdout(sys.stderr):  # the progress; standard output belongs to the result
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    return trainer.state


def _arguments(run: Pretraining) -> TrainingArguments:
    numbers = run.optimization
    arguments = TrainingArguments(
        output_dir=str(run.directory),
        max_steps=run.budget.steps or _ENDLESS,
        per_device_train_batch_size=numbers.batch_size,
        per_device_eval_batch_size=numbers.batch_size,
        train_sampling_strategy="sequential",  # `TrainingText` has drawn the order
        max_grad_norm=1.0,
        seed=numbers.seed,
        eval_strategy="no",  # `Pacing` says when to evaluate and to save
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
    arguments._n_gpu = min(arguments.n_gpu, 1)  # one process drives one device
    return arguments
