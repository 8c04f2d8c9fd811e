"""AdapterHub's LoRA on attention and feed-forward layers, gated or not."""

import re
from dataclasses import replace

from peltier_backbone.backbone import Backbone

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import Checkpoint
from peltier_adapters.importers.shared.config_file import ConfigFile
from peltier_adapters.importers.shared.imported_part import ImportedPart
from peltier_adapters.importers.shared.lora import LoraNames, create_lora, lora_modules, take_pair

_FIXED = (1, 1)  # adapters 1.1


def read_lora(config: ConfigFile, checkpoint: Checkpoint, backbone: Backbone, version: str) -> ImportedPart:
    """The part; a gate replaces the scale alpha / r."""
    config.only("composition_mode", "add")
    config.only("use_dora", False)
    for key in ("vera_d", "vera_b"):
        config.only(key, None)
    config.ignore("attn_matrices", "selfattn_lora", "intermediate_lora", "output_lora")
    config.ignore("init_weights", "use_gating", "r")
    alpha = config.number("alpha", 8)
    pairs = {}
    for module, place in lora_modules(backbone.config).items():
        name = f"{module}.loras.T"
        if f"{name}.lora_A" in checkpoint:
            names = LoraNames(f"{name}.lora_A", f"{name}.lora_B", f"{name}.gate")
            pair = take_pair(checkpoint, names, alpha, place[0], backbone.config)
            pairs[place] = replace(pair, scale=1.0) if _is_old(version) else pair
    if not pairs:
        raise AdapterError(f"{checkpoint.where} has no LoRA at any projection of this backbone")
    return create_lora(pairs, backbone.config)


def _is_old(version: str) -> bool:
    """Whether LoRA had a scale of 1, whatever alpha is, as before 1.1.0 (docs/methods.md#adapterhub)."""
    match = re.match(r"adapters\.(\d+)\.(\d+)", version)
    return match is not None and (int(match[1]), int(match[2])) < _FIXED
