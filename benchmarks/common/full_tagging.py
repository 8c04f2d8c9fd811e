"""Full fine-tuning for token classification with plain transformers: the reference of `entities.py`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common.full_arguments import full_arguments
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from seqeval.metrics import f1_score, precision_score, recall_score
from torch.utils.data import Dataset
from transformers import (
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForTokenClassification,
    EvalPrediction,
    Trainer,
)

IGNORED = -100
Row = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class TagRun:
    """Hyper-parameters of one run."""

    epochs: int
    learning_rate: float
    batch_size: int = 32
    seed: int = 0
    max_length: int = 128
    bf16: bool = False


class _Rows(Dataset[dict[str, Any]]):
    """Lists of words; the first token of a word carries its tag, by the tokenizer's own numbers of words."""

    def __init__(self, tokenizer: Any, rows: Sequence[Row], tags: Sequence[str], max_length: int) -> None:
        places = {tag: place for place, tag in enumerate(tags)}
        self._items = []
        for row in rows:
            item = tokenizer(list(row["tokens"]), is_split_into_words=True, truncation=True, max_length=max_length)
            words = item.word_ids()
            item["labels"] = [
                IGNORED if word is None or word == before else places[row["tags"][word]]
                for before, word in zip([None, *words], words, strict=False)
            ]
            self._items.append(dict(item))

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self._items[index]


def full_tagging(
    tags: Sequence[str], parts: Mapping[str, Sequence[Row]], run: TagRun, directory: Path
) -> dict[str, dict[str, float]]:
    """seqeval's metrics on `validation` and `test`, of the epoch that is best on `validation`."""
    checkpoint = find_checkpoint("minilm")
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    torch.manual_seed(run.seed)
    model = AutoModelForTokenClassification.from_pretrained(checkpoint, num_labels=len(tags))
    rows = {part: _Rows(tokenizer, own, tags, run.max_length) for part, own in parts.items()}
    trainer = Trainer(
        model=model,
        args=full_arguments(run, directory),
        train_dataset=rows["train"],
        eval_dataset={part: rows[part] for part in ("validation", "test")},
        data_collator=DataCollatorForTokenClassification(tokenizer),
        compute_metrics=lambda found: _score(tags, found),
    )
    trainer.train()
    epochs: dict[float, dict[str, dict[str, float]]] = {}
    for entry in trainer.state.log_history:
        for part in ("validation", "test"):
            if f"eval_{part}_f1" in entry:
                own = {name: entry[f"eval_{part}_{name}"] for name in ("f1", "precision", "recall")}
                epochs.setdefault(entry["epoch"], {})[part] = own
    return max(epochs.values(), key=lambda one: one["validation"]["f1"])


def _score(tags: Sequence[str], found: EvalPrediction) -> dict[str, float]:
    given, wanted = np.asarray(found.predictions).argmax(-1), np.asarray(found.label_ids)
    pairs = [(row[gold != IGNORED], gold[gold != IGNORED]) for row, gold in zip(given, wanted, strict=True)]
    answers = [[tags[place] for place in row] for row, _ in pairs]
    gold = [[tags[place] for place in row] for _, row in pairs]
    metrics = {"f1": f1_score, "precision": precision_score, "recall": recall_score}
    return {name: float(metric(gold, answers, zero_division=0)) for name, metric in metrics.items()}
