"""Tokenised rows for the Trainer, their batches, and their order.

Rows keep their lengths, because batches are packed rather than padded. Only transformers' models take padded rows.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import torch
from peltier_backbone.checkpoint.config import BackboneConfig
from peltier_backbone.text.packing import Encoded
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset, Sampler

EncodedItem = Encoded | tuple[Encoded, Encoded]
IGNORED = -100  # torch's cross-entropy ignores such labels
T = TypeVar("T")


class EncodedRows(Dataset[tuple[EncodedItem, Tensor]]):
    """Rows of a task with a head, or pairs of rows, and their targets. `queries` has the number of each row's query in
    a ranking, whose rows are trained on together; None in other tasks."""

    def __init__(self, rows: Sequence[EncodedItem], targets: Tensor, queries: Sequence[int] | None = None) -> None:
        self._rows, self._targets, self.queries = rows, targets, queries

    @property
    def encoded(self) -> list[Encoded]:
        """All rows, those of a pair one after the other."""
        return flatten(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> tuple[EncodedItem, Tensor]:
        return self._rows[index], self._targets[index]


def collate(items: Sequence[tuple[EncodedItem, Tensor]]) -> dict[str, Any]:
    """A batch; the rows of a pair are neighbours. Labels come first, because the Trainer counts rows by the first
    value."""
    return {"labels": torch.stack([target for _, target in items]), "rows": flatten([row for row, _ in items])}


def flatten(items: Sequence[EncodedItem]) -> list[Encoded]:
    return [row for item in items for row in (item if isinstance(item, tuple) else (item,))]


class TextRow(NamedTuple):
    """An input, the tokens that the decoder reads, and as `labels` the token that follows each."""

    encoded: Encoded
    read: tuple[int, ...]
    labels: tuple[int, ...]


def collate_texts(items: Sequence[TextRow]) -> dict[str, Any]:
    """A batch; `labels` [nodes] are the tokens that follow."""
    return {
        "labels": torch.tensor([token for item in items for token in item.labels]),
        "rows": [item.encoded for item in items],
        "targets": [item.read for item in items],
    }


def pad_rows(rows: Sequence[Encoded], config: BackboneConfig) -> dict[str, Tensor]:
    """Ids, mask and, if the model reads them, token types, each [rows, tokens]."""
    ids = [torch.tensor(row.ids) for row in rows]
    pad = 0 if config.generates else config.pad_token_id
    padded = {
        "input_ids": pad_sequence(ids, batch_first=True, padding_value=pad),
        "attention_mask": pad_sequence([torch.ones_like(row) for row in ids], batch_first=True),
    }
    if config.typed:
        padded["token_type_ids"] = pad_sequence([torch.tensor(row.types) for row in rows], batch_first=True)
    return padded


def pad_texts(rows: Sequence[TextRow], config: BackboneConfig) -> dict[str, Tensor]:
    """Padded inputs and decoder tokens; `label_grid` [rows, tokens] has the token that follows each."""
    labels = pad_sequence([torch.tensor(row.labels) for row in rows], batch_first=True, padding_value=IGNORED)
    read = pad_sequence([torch.tensor(row.read) for row in rows], batch_first=True)
    return pad_rows([row.encoded for row in rows], config) | {"decoder_input_ids": read, "label_grid": labels}


class QuerySampler(Sampler[int]):
    """Rows in a random order of queries, and of the documents of each. A query that does not fit into a batch is
    divided between two; `queries` has the query of each row."""

    def __init__(self, queries: Sequence[int], seed: int) -> None:
        self._rows: dict[int, list[int]] = {}
        for row, query in enumerate(queries):
            self._rows.setdefault(query, []).append(row)
        self._num_rows, self._seed, self._epoch = len(queries), seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch, also of one that is resumed."""
        self._epoch = epoch

    def __len__(self) -> int:
        return self._num_rows

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self._seed + self._epoch)
        shuffled = (_shuffled(rows, generator) for rows in _shuffled(list(self._rows.values()), generator))
        return chain.from_iterable(shuffled)


def _shuffled(items: Sequence[T], generator: torch.Generator) -> list[T]:
    return [items[place] for place in torch.randperm(len(items), generator=generator).tolist()]
