"""The Trainer's arguments of full fine-tuning with plain transformers."""

from pathlib import Path
from typing import Any, Protocol

from transformers import TrainingArguments


class Numbers(Protocol):
    """The hyper-parameters of one run."""

    @property
    def epochs(self) -> int: ...
    @property
    def learning_rate(self) -> float: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def bf16(self) -> bool: ...


def full_arguments(run: Numbers, directory: Path, **own: Any) -> TrainingArguments:
    """The arguments of `run`; a caller's `own` come first."""
    common = {
        "output_dir": str(directory),
        "num_train_epochs": run.epochs,
        "learning_rate": run.learning_rate,
        "per_device_train_batch_size": run.batch_size,
        "per_device_eval_batch_size": 64,
        "warmup_steps": 0.06,
        "seed": run.seed,
        "eval_strategy": "epoch",
        "save_strategy": "no",
        "report_to": [],
        "bf16": run.bf16,
        "use_cpu": True,
        "train_sampling_strategy": "group_by_length",
        "dataloader_pin_memory": False,
    }
    return TrainingArguments(**{**common, **own})
