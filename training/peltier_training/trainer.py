"""The Hugging Face Trainer over packed rows."""

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from peltier_backbone.packing import Encoded
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset
from transformers import EvalPrediction, ProgressCallback, Trainer, TrainingArguments

from peltier_training import metrics
from peltier_training.checkpoint import find_checkpoint, remove_checkpoints
from peltier_training.errors import TrainingError
from peltier_training.experts import consistency_loss
from peltier_training.labels import TaskType
from peltier_training.model import TrainableAdapter
from peltier_training.run import Run


class EncodedRows(Dataset[tuple[Encoded, Tensor]]):
    """Tokenised rows and their targets."""

    def __init__(self, rows: Sequence[Encoded], targets: Tensor) -> None:
        self._rows, self._targets = rows, targets

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> tuple[Encoded, Tensor]:
        return self._rows[index], self._targets[index]


def collate(items: Sequence[tuple[Encoded, Tensor]]) -> dict[str, Any]:
    """Rows stay ragged: they are packed, never padded. Labels come first, the Trainer counts rows by them."""
    return {"labels": torch.stack([target for _, target in items]), "rows": [row for row, _ in items]}


@dataclass(frozen=True)
class Objective:
    """What is minimised: the task's loss, and AdaMix's consistency between two passes with this weight."""

    type: TaskType
    consistency: float

    def task_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        match self.type:
            case "classification":
                return F.cross_entropy(logits, labels)
            case "multilabel":
                return F.binary_cross_entropy_with_logits(logits, labels)
            case "regression":
                return F.mse_loss(logits[:, 0], labels)

    @property
    def has_consistency(self) -> bool:
        """A single number is no distribution: regression has no divergence (methods.md 1.15)."""
        return self.consistency > 0 and self.type != "regression"


class AdapterTrainer(Trainer):
    """Trains a `TrainableAdapter`; checkpoints hold the adapter and its optimizer only."""

    def __init__(self, *, objective: Objective, **options: Any) -> None:
        self._objective = objective
        super().__init__(data_collator=collate, **options)

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Neither norms nor biases decay; the Trainer does not know our norms by their names."""
        names: list[str] = super().get_decay_parameter_names(model)
        return [name for name in names if not name.split(".")[-1].startswith("norm/")]

    def compute_loss(  # type: ignore[override]
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, **_: Any
    ) -> Any:
        adapter = self.model  # `model` may be wrapped by torchrun
        assert isinstance(adapter, TrainableAdapter)
        packed = adapter.backbone.pack(inputs["rows"])
        logits = model(packed)
        loss = self._objective.task_loss(logits, inputs["labels"])
        if model.training and adapter.is_mixture and self._objective.has_consistency:
            other = model(packed)
            extra = consistency_loss(logits, other, multilabel=self._objective.type == "multilabel")
            loss = loss + self._objective.consistency * extra
        return (loss, {"logits": logits}) if return_outputs else loss


def fit(run: Run, model: TrainableAdapter, rows: Sequence[EncodedRows]) -> None:
    """Train on `rows[0]` and leave in `model` the epoch that was best on `rows[1]`."""
    checkpoint = str(find_checkpoint(run.directory, model)) if run.resume else None
    if checkpoint is None:
        remove_checkpoints(run.directory)

    def compute(prediction: EvalPrediction) -> dict[str, float]:
        logits = np.asarray(prediction.predictions)
        if not np.isfinite(logits).all():
            raise TrainingError(f"training diverged at learning rate {run.learning_rate:g}; try a lower one")
        return metrics.compute(run.task_type, logits, np.asarray(prediction.label_ids))

    trainer = AdapterTrainer(
        objective=Objective(run.task_type, float(model.settings.get("consistency", 0.0))),
        model=model,
        args=_arguments(run),
        train_dataset=rows[0],
        eval_dataset=rows[1],
        compute_metrics=compute,
    )
    with redirect_stdout(sys.stderr):  # the progress; standard output belongs to the result
        try:
            trainer.train(resume_from_checkpoint=checkpoint)
        except TrainingError:
            _close_bars(trainer)
            raise


def _close_bars(trainer: Trainer) -> None:
    """What went wrong is said on a line of its own, below them."""
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, ProgressCallback):
            for bar in (callback.prediction_bar, callback.training_bar):
                if bar is not None:
                    bar.close()


def _arguments(run: Run) -> TrainingArguments:
    numbers = run.hyperparameters
    arguments = TrainingArguments(
        output_dir=str(run.directory),
        num_train_epochs=numbers.epochs,
        learning_rate=run.learning_rate,
        per_device_train_batch_size=numbers.batch_size,
        per_device_eval_batch_size=numbers.batch_size,
        warmup_steps=numbers.warmup,
        weight_decay=numbers.weight_decay,
        seed=numbers.seed,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model=run.metric,
        greater_is_better=run.metric not in metrics.LOWER_IS_BETTER,
        logging_strategy="steps",
        logging_steps=50,
        report_to=["tensorboard"],
        remove_unused_columns=False,
        label_names=["labels"],
        dataloader_pin_memory=False,
        ddp_find_unused_parameters=False,
        use_cpu=run.device == "cpu",
    )
    # One process drives one device: DataParallel would cut the packed rows in pieces.
    arguments._n_gpu = min(arguments.n_gpu, 1)
    return arguments
