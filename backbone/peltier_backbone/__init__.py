"""The frozen model: loading a checkpoint, and a padding-free forward pass with points where adapters act."""

from peltier_backbone.checkpoint.config import BackboneConfig, BertConfig, ModernBertConfig, T5Config, load_config
from peltier_backbone.errors import BackboneError

__all__ = ["BackboneConfig", "BackboneError", "BertConfig", "ModernBertConfig", "T5Config", "load_config"]
