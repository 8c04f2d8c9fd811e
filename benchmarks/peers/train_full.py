"""Full fine-tuning with transformers."""

import sys
from pathlib import Path

import torch
from answering import answer
from plain_loop import autocast_logits, train_epoch
from transformers import BertForSequenceClassification

DTYPE, CHECKPOINT, ROWS = getattr(torch, sys.argv[1]), sys.argv[2], Path(sys.argv[3])

torch.set_num_threads(1)
torch.manual_seed(0)
model = BertForSequenceClassification.from_pretrained(
    CHECKPOINT, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
).train()


def epoch() -> None:
    """Of all parameters."""
    train_epoch(ROWS, list(model.parameters()), lambda rows: autocast_logits(model, rows, DTYPE), 1e-4)


answer({"nothing": lambda: None, "epoch": epoch})
