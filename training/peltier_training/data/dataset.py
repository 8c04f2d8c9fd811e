"""Tokenised rows for the Trainer. They keep their lengths, because batches are packed rather than padded."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from peltier_backbone.text.packing import Encoded
from torch import Tensor
from torch.utils.data import Dataset

Item = Encoded | tuple[Encoded, Encoded]


class EncodedRows(Dataset[tuple[Item, Tensor]]):
    """Rows of a task with a head, or pairs of rows, and their targets. `queries` has the number of each row's query in
    a ranking, whose rows are trained on together; None in other tasks."""

    def __init__(self, rows: Sequence[Item], targets: Tensor, queries: Sequence[int] | None = None) -> None:
        self._rows, self._targets, self.queries = rows, targets, queries

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> tuple[Item, Tensor]:
        return self._rows[index], self._targets[index]


def collate(items: Sequence[tuple[Item, Tensor]]) -> dict[str, Any]:
    """A batch; the rows of a pair are neighbours. Labels come first, because the Trainer counts rows by the first
    value."""
    return {"labels": torch.stack([target for _, target in items]), "rows": flatten([row for row, _ in items])}


def flatten(items: Sequence[Item]) -> list[Encoded]:
    """All rows."""
    return [row for item in items for row in (item if isinstance(item, tuple) else (item,))]


class TextRow(NamedTuple):
    """An input, the tokens that the decoder reads, and as `labels` the token that follows each."""

    encoded: Encoded
    read: tuple[int, ...]
    labels: tuple[int, ...]


class TextRows(Dataset[TextRow]):
    """Rows that a T5 answers in text."""

    def __init__(self, rows: Sequence[TextRow]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> TextRow:
        return self._rows[index]


def collate_texts(items: Sequence[TextRow]) -> dict[str, Any]:
    """A batch; `labels` [nodes] are the tokens that follow."""
    return {
        "labels": torch.tensor([token for item in items for token in item.labels]),
        "rows": [item.encoded for item in items],
        "targets": [item.read for item in items],
    }
