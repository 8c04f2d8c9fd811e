"""Peltier's Compacter."""

import sys
from pathlib import Path

import torch
from answering import answer
from peltier_adapters.presets.presets import find_preset
from peltier_backbone.load import load_backbone
from peltier_backbone.text.packing import Encoded
from peltier_training.models.model import HeadedAdapter
from plain_loop import Row, train_epoch
from torch import Tensor

DTYPE, CHECKPOINT, ROWS = sys.argv[1], sys.argv[2], Path(sys.argv[3])

torch.set_num_threads(1)
torch.manual_seed(0)
backbone = load_backbone(CHECKPOINT, dtype=DTYPE)
preset = find_preset("compacter")
settings = preset.settings({}, backbone.config)
parts = preset.compose(settings, backbone.config, outputs=2)
model = HeadedAdapter(backbone, parts, settings, seed=0).train()


def logits(rows: list[Row]) -> Tensor:
    """[rows, 2]"""
    return model(backbone.pack([Encoded(tuple(ids), (0,) * len(ids)) for ids, _ in rows]))


answer({"nothing": lambda: None, "epoch": lambda: train_epoch(ROWS, list(model.parameters()), logits, 3e-3)})
