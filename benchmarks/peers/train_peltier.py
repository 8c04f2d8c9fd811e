"""Peltier's Compacter."""

from peltier_adapters.presets.presets import find_preset
from peltier_backbone.load import load_backbone
from peltier_backbone.text.packing import Encoded
from peltier_training.models.model import HeadedAdapter
from plain_loop import CHECKPOINT, DTYPE, Row, answer_epochs
from torch import Tensor

backbone = load_backbone(CHECKPOINT, dtype=DTYPE)
preset = find_preset("compacter")
settings = preset.settings({}, backbone.config)
parts = preset.compose(settings, backbone.config, outputs=2)
model = HeadedAdapter(backbone, parts, settings, seed=0).train()


def logits(rows: list[Row]) -> Tensor:
    """[rows, 2]"""
    return model(backbone.pack([Encoded(tuple(ids), (0,) * len(ids)) for ids, _ in rows]))


answer_epochs(model, logits, 3e-3)
