"""The common part of the processes of `training.py`: the same batches in the same order, and AdamW."""

import json
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch
from answering import answer
from common.padding import pad
from torch import Tensor, nn
from torch.nn import functional as F

DTYPE, CHECKPOINT, ROWS = sys.argv[1], sys.argv[2], Path(sys.argv[3])
BATCH = 32
Row = tuple[list[int], int]

torch.set_num_threads(1)
torch.manual_seed(0)


def batches() -> Iterator[list[Row]]:
    """All rows once, in random order."""
    rows = json.loads(ROWS.read_text())
    random.Random(0).shuffle(rows)
    return (rows[first : first + BATCH] for first in range(0, len(rows), BATCH))


def autocast_logits(model: nn.Module, rows: list[Row]) -> Tensor:
    """The logits of a model of transformers, [rows, labels], under autocast in bfloat16."""
    ids, mask = pad([ids for ids, _ in rows])
    with torch.autocast("cpu", torch.bfloat16, enabled=DTYPE == "bfloat16"):
        found: Tensor = model(input_ids=ids, attention_mask=mask).logits
    return found.float()


def train_epoch(parameters: Iterable[nn.Parameter], logits_of: Callable[[list[Row]], Tensor], rate: float) -> None:
    """One epoch over all rows."""
    optimizer = torch.optim.AdamW(parameters, lr=rate)
    for rows in batches():
        loss = F.cross_entropy(logits_of(rows), torch.tensor([label for _, label in rows]))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def answer_epochs(model: nn.Module, logits_of: Callable[[list[Row]], Tensor], rate: float) -> None:
    """Trains what `model` has left to train, an epoch for each line of standard input that asks for one."""
    trained = [one for one in model.parameters() if one.requires_grad]
    answer({"nothing": lambda: None, "epoch": lambda: train_epoch(trained, logits_of, rate)})
