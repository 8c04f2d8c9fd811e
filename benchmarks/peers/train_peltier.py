"""Peltier's Compacter."""

from common.adapters import create_trained
from common.forced import hold_kernels
from peltier_backbone.load import load_backbone
from peltier_backbone.text.packing import Encoded
from peltier_training.models.model import HeadedAdapter
from plain_loop import CHECKPOINT, DTYPE, Row, answer_epochs
from torch import Tensor

hold_kernels()
backbone = load_backbone(CHECKPOINT, dtype=DTYPE)
model = create_trained(HeadedAdapter, backbone, "compacter")


def logits(rows: list[Row]) -> Tensor:
    """[rows, 2]"""
    return model(backbone.pack([Encoded(tuple(ids), (0,) * len(ids)) for ids, _ in rows]))


answer_epochs(model, logits, 3e-3)
