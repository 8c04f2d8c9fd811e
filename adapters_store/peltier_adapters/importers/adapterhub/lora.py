"""AdapterHub's LoRA on the attention, gated or not."""

import re

from peltier_backbone.load import Backbone

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import Checkpoint
from peltier_adapters.importers.shared.config_file import ConfigFile
from peltier_adapters.importers.shared.gate import take_gate
from peltier_adapters.importers.shared.imported_part import ImportedPart
from peltier_adapters.importers.shared.lora import LoraPair, create_lora
from peltier_adapters.importers.shared.module_sites import find_sites

_FIXED = (1, 1)  # adapters 1.1


def read_lora(config: ConfigFile, checkpoint: Checkpoint, backbone: Backbone, version: str) -> ImportedPart:
    """The part; a gate replaces the scale alpha / r."""
    config.only("composition_mode", "add")
    for key in ("intermediate_lora", "output_lora", "use_dora"):
        config.only(key, False)
    for key in ("vera_d", "vera_b"):
        config.only(key, None)
    config.ignore("attn_matrices", "selfattn_lora", "init_weights", "use_gating", "r")
    alpha = config.number("alpha", 8)
    pairs = {}
    for module, place in find_sites(backbone.config).projections.items():
        name = f"{module}.loras.T"
        if f"{name}.lora_A" in checkpoint:
            a = checkpoint.take(f"{name}.lora_A", None, backbone.config.hidden_size)
            b = checkpoint.take(f"{name}.lora_B", backbone.config.attention_size, len(a))
            scale = 1.0 if _is_old(version) else alpha / len(a)
            pairs[place] = LoraPair(a, b, scale, take_gate(checkpoint, f"{name}.gate", backbone.config.hidden_size))
    if not pairs:
        raise AdapterError(f"{checkpoint.where} has no LoRA at any projection of this backbone")
    return create_lora(pairs, backbone.config)


def _is_old(version: str) -> bool:
    """Whether LoRA had a scale of 1, whatever alpha is, as before 1.1.0 (docs/methods.md#adapterhub)."""
    match = re.match(r"adapters\.(\d+)\.(\d+)", version)
    return match is not None and (int(match[1]), int(match[2])) < _FIXED
