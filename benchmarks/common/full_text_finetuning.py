"""Full fine-tuning of a T5 with plain transformers on the same rows: the reference of `t5_quality.py`."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from common.full_arguments import full_arguments
from peltier_adapters.spec.tasks import TaskSpec
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.load import load_backbone
from peltier_training.data.dataset import TextRow
from peltier_training.data.examples import Example
from peltier_training.data.rows import text_rows
from peltier_training.evaluate import metrics
from peltier_training.evaluate.text_examination import examine
from torch.nn.utils.rnn import pad_sequence
from transformers import T5ForConditionalGeneration, Trainer, TrainingArguments


@dataclass(frozen=True)
class FullTextRun:
    """Hyper-parameters of one run; `directory` holds what it needs on the way."""

    directory: Path
    epochs: int
    learning_rate: float
    batch_size: int = 32
    seed: int = 0
    bf16: bool = False
    device: str = "cpu"


def collate(rows: Sequence[TextRow]) -> dict[str, torch.Tensor]:
    """Padded, as transformers wants it."""
    ids = [torch.tensor(row.encoded.ids) for row in rows]
    labels = [torch.tensor(row.labels) for row in rows]
    return {
        "input_ids": pad_sequence(ids, batch_first=True),
        "attention_mask": pad_sequence([torch.ones_like(one) for one in ids], batch_first=True),
        "labels": pad_sequence(labels, batch_first=True, padding_value=-100),
    }


class FullTrainer(Trainer):
    """Measures each epoch as a backbone of the server's own, bare of adapters."""

    def __init__(self, *, measure: Callable[[T5ForConditionalGeneration], dict[str, float]], **options: Any) -> None:
        self._measure, self.found = measure, list[dict[str, float]]()
        super().__init__(**options)

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        self.found.append(self._measure(self.model))
        scores = {f"eval_{name}": value for name, value in self.found[-1].items()}
        self.log(scores)
        return scores


def full_text_finetuning(
    backbone: Backbone, task: TaskSpec, examples: Sequence[Example], validation: Sequence[Example], run: FullTextRun
) -> dict[str, float]:
    """Metrics of the best epoch."""
    checkpoint = find_checkpoint(backbone.name)
    torch.manual_seed(run.seed)
    model = T5ForConditionalGeneration.from_pretrained(checkpoint, dtype=torch.float32)

    def measure(tuned: T5ForConditionalGeneration) -> dict[str, float]:
        saved = run.directory / "tuned"
        shutil.copytree(checkpoint, saved, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.safetensors*", "*.bin"))
        tuned.save_pretrained(saved)
        return dict(examine(load_backbone(str(saved), device=run.device), task, None, validation).metrics)

    trainer = FullTrainer(
        measure=measure,
        model=model,
        args=_arguments(run),
        data_collator=collate,
        train_dataset=text_rows(backbone, task, (), examples),
        eval_dataset=[],
    )
    trainer.train()
    best = metrics.BEST[task.type]
    return max(trainer.found, key=lambda found: found[best])


def _arguments(run: FullTextRun) -> TrainingArguments:
    return full_arguments(
        run,
        run.directory,
        use_cpu=run.device == "cpu",
        train_sampling_strategy="random",
        label_names=["labels"],
        remove_unused_columns=False,
    )
