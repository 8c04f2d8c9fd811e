"""The Hugging Face Trainer over packed rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from peltier_backbone.packing import Encoded
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import Dataset
from transformers import EvalPrediction, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from peltier_training import metrics
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

    def compute_loss(  # type: ignore[override]
        self, model: TrainableAdapter, inputs: dict[str, Any], return_outputs: bool = False, **_: Any
    ) -> Any:
        packed = model.backbone.pack(inputs["rows"])
        logits = model(packed)
        loss = self._objective.task_loss(logits, inputs["labels"])
        if model.training and model.is_mixture and self._objective.has_consistency:
            other = model(packed)
            extra = consistency_loss(logits, other, multilabel=self._objective.type == "multilabel")
            loss = loss + self._objective.consistency * extra
        return (loss, {"logits": logits}) if return_outputs else loss


def fit(run: Run, model: TrainableAdapter, rows: Sequence[EncodedRows]) -> None:
    """Train on `rows[0]` and leave in `model` the epoch that was best on `rows[1]`."""

    def compute(prediction: EvalPrediction) -> dict[str, float]:
        return metrics.compute(run.task_type, np.asarray(prediction.predictions), np.asarray(prediction.label_ids))

    trainer = AdapterTrainer(
        objective=Objective(run.task_type, float(model.settings.get("consistency", 0.0))),
        model=model,
        args=_arguments(run),
        train_dataset=rows[0],
        eval_dataset=rows[1],
        compute_metrics=compute,
    )
    trainer.train(resume_from_checkpoint=_checkpoint(run))


def _arguments(run: Run) -> TrainingArguments:
    numbers = run.hyperparameters
    return TrainingArguments(
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
        use_cpu=run.device == "cpu",
    )


def _checkpoint(run: Run) -> str | None:
    if not run.resume:
        return None
    last: str | None = get_last_checkpoint(str(run.directory)) if run.directory.is_dir() else None  # type: ignore[no-untyped-call]
    if last is None:
        raise TrainingError(f"there is no checkpoint to resume from in {run.directory}")
    return last
