"""AdapterHub's Compacter, with the norms trained as Peltier's preset does."""

import sys
from pathlib import Path

import torch
from adapters import BertAdapterModel, CompacterConfig
from answering import answer
from plain_loop import autocast_logits, train_epoch

DTYPE, CHECKPOINT, ROWS = getattr(torch, sys.argv[1]), sys.argv[2], Path(sys.argv[3])

torch.set_num_threads(1)
torch.manual_seed(0)
model = BertAdapterModel.from_pretrained(CHECKPOINT, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
model.add_adapter("compacter", CompacterConfig(reduction_factor=16, phm_dim=4))
model.add_classification_head("compacter", num_labels=2)
model.train_adapter("compacter")
for name, parameter in model.named_parameters():
    if "LayerNorm" in name:
        parameter.requires_grad_(True)
model.train()


def epoch() -> None:
    """Of what `train_adapter` has left to train."""
    trained = [one for one in model.parameters() if one.requires_grad]
    train_epoch(ROWS, trained, lambda rows: autocast_logits(model, rows, DTYPE), 3e-3)


answer({"nothing": lambda: None, "epoch": epoch})
