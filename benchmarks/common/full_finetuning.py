"""Full fine-tuning of the same backbone with plain transformers: the reference of `quality.py`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common.full_arguments import full_arguments
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_training.data.examples import Example
from peltier_training.data.labels import Labels
from peltier_training.evaluate import metrics
from torch import nn
from torch.utils.data import Dataset
from transformers import AutoModel, AutoTokenizer, DataCollatorWithPadding, Trainer


@dataclass(frozen=True)
class FullRun:
    """Hyper-parameters of one run; the pooling is the head's, as an adapter's head has it."""

    epochs: int
    learning_rate: float
    batch_size: int = 32
    seed: int = 0
    pooling: str = "pooler"
    bf16: bool = False


class Classifier(nn.Module):
    """The whole encoder, trained, and a linear head."""

    def __init__(self, directory: Path, labels: Labels, pooling: str) -> None:
        super().__init__()
        self.encoder = AutoModel.from_pretrained(directory)
        self.head = nn.Linear(self.encoder.config.hidden_size, len(labels.names))
        self._kind, self._pooling = labels.type, pooling
        self._dropout = nn.Dropout(0.1)

    def forward(self, labels: torch.Tensor, attention_mask: torch.Tensor, **inputs: torch.Tensor) -> dict[str, Any]:
        output = self.encoder(attention_mask=attention_mask, **inputs)
        pooled = output.pooler_output
        if self._pooling == "mean":
            mask = attention_mask[..., None]
            pooled = (output.last_hidden_state * mask).sum(1) / mask.sum(1)
        logits = self.head(self._dropout(pooled)).float()
        if self._kind == "regression":
            return {"loss": nn.functional.mse_loss(logits[:, 0], labels), "logits": logits}
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class _Rows(Dataset[dict[str, Any]]):
    def __init__(self, tokenizer: Any, examples: Sequence[Example], targets: torch.Tensor) -> None:
        texts = [(e.input,) if isinstance(e.input, str) else e.input for e in examples]
        self._items = [tokenizer(*text, truncation=True, max_length=128) for text in texts]
        self._targets = targets

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {**self._items[index], "labels": self._targets[index]}


def full_finetuning(
    labels: Labels, train: Sequence[Example], validation: Sequence[Example], run: FullRun, directory: Path
) -> dict[str, float]:
    """Metrics of the best epoch."""
    checkpoint = find_checkpoint("minilm")
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    torch.manual_seed(run.seed)
    model = Classifier(checkpoint, labels, run.pooling)
    if labels.type == "regression":
        nn.init.constant_(model.head.bias, float(labels.targets(train).mean()))
    trainer = Trainer(
        model=model,
        args=full_arguments(run, directory, label_names=["labels"], remove_unused_columns=False),
        train_dataset=_Rows(tokenizer, train, labels.targets(train)),
        eval_dataset=_Rows(tokenizer, validation, labels.targets(validation)),
        data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=lambda p: metrics.compute(labels.type, np.asarray(p.predictions), np.asarray(p.label_ids)),
    )
    trainer.train()
    best = f"eval_{metrics.BEST[labels.type]}"
    evaluations = [entry for entry in trainer.state.log_history if best in entry]
    top = max(evaluations, key=lambda entry: entry[best])
    return {name: top[f"eval_{name}"] for name in metrics.NAMES[labels.type] if f"eval_{name}" in top}
