"""Full fine-tuning with transformers."""

import sys
from pathlib import Path

import torch
from answering import answer
from plain_loop import Row, pad, train_epoch
from torch import Tensor
from transformers import BertForSequenceClassification

DTYPE, CHECKPOINT, ROWS = getattr(torch, sys.argv[1]), sys.argv[2], Path(sys.argv[3])

torch.set_num_threads(1)
torch.manual_seed(0)
model = BertForSequenceClassification.from_pretrained(
    CHECKPOINT, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
).train()


def logits(rows: list[Row]) -> Tensor:
    """[rows, 2]"""
    ids, mask = pad(rows)
    with torch.autocast("cpu", torch.bfloat16, enabled=torch.bfloat16 == DTYPE):
        found: Tensor = model(input_ids=ids, attention_mask=mask).logits
    return found.float()


answer(
    {
        "nothing": lambda: None,
        "epoch": lambda: train_epoch(ROWS, list(model.parameters()), logits, 1e-4),
    }
)
