"""The common part of all training loops: the same batches in the same order, and AdamW."""

import json
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from common.padding import pad

BATCH = 32
Row = tuple[list[int], int]


def batches(path: Path) -> Iterator[list[Row]]:
    """All rows once, in random order."""
    rows = json.loads(path.read_text())
    random.Random(0).shuffle(rows)
    return (rows[first : first + BATCH] for first in range(0, len(rows), BATCH))


def autocast_logits(model: nn.Module, rows: list[Row], dtype: torch.dtype) -> Tensor:
    """The logits of a model of transformers, [rows, labels], under autocast if `dtype` is bfloat16."""
    ids, mask = pad([ids for ids, _ in rows])
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        found: Tensor = model(input_ids=ids, attention_mask=mask).logits
    return found.float()


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
