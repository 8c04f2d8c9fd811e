"""The common part of all training loops: the same batches in the same order, and AdamW."""

import json
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

BATCH = 32
Row = tuple[list[int], int]


def batches(path: Path) -> Iterator[list[Row]]:
    """All rows once, in random order."""
    rows = json.loads(path.read_text())
    random.Random(0).shuffle(rows)
    return (rows[first : first + BATCH] for first in range(0, len(rows), BATCH))


def pad(rows: list[Row]) -> tuple[Tensor, Tensor]:
    """Ids and mask, [rows, longest]."""
    width = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([ids + [0] * (width - len(ids)) for ids, _ in rows])
    mask = torch.tensor([[1] * len(ids) + [0] * (width - len(ids)) for ids, _ in rows])
    return ids, mask


def train_epoch(
    path: Path, parameters: Iterable[nn.Parameter], logits_of: Callable[[list[Row]], Tensor], rate: float
) -> None:
    """One epoch over the rows of `path`."""
    optimizer = torch.optim.AdamW(parameters, lr=rate)
    for rows in batches(path):
        loss = F.cross_entropy(logits_of(rows), torch.tensor([label for _, label in rows]))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
