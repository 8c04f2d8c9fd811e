"""The frozen model: checkpoint in, padding-free forward out, with points where adapters act."""

from peltier_backbone.config import BackboneConfig, load_config
from peltier_backbone.errors import BackboneError

__all__ = ["BackboneConfig", "BackboneError", "load_config"]
