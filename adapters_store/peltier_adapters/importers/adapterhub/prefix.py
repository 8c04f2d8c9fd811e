"""AdapterHub's prefixes on encoders, whose MLP is evaluated and dropped."""

from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.config import BackboneConfig
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import Checkpoint
from peltier_adapters.importers.shared.config_file import ConfigFile
from peltier_adapters.importers.shared.gate import take_gate
from peltier_adapters.importers.shared.imported_part import ImportedPart
from peltier_adapters.importers.shared.module_sites import find_sites
from peltier_adapters.importers.shared.prefix import (
    KeysValues,
    create_prefix,
    evaluate_prefix,
    prefix_width,
    unfold_prefix,
)

_TABLE = "prefix_tuning.prefix_tunings.T.self_prefix"


def read_prefix(config: ConfigFile, checkpoint: Checkpoint, backbone: Backbone, version: str) -> ImportedPart:
    """The part of an encoder's prefixes."""
    if backbone.config.generates:
        raise AdapterError(
            f"{config.where}: a prefix of AdapterHub on a T5 shifts the relative positions of the text by its length; "
            "only prefixes that do not shift positions are supported"
        )
    config.only("leave_out", [], None)
    config.only("non_linearity", "tanh")
    config.ignore("encoder_prefix", "cross_prefix", "bottleneck_size", "shared_gating")
    if config.get("use_gating", False) and not config.get("shared_gating", True):
        raise AdapterError(
            f"{config.where}: keys and values have separate gates (shared_gating is false); only one gate is supported"
        )
    gates, hidden = {}, backbone.config.hidden_size
    for module, index in find_sites(backbone.config).attentions.items():
        gates[index] = take_gate(checkpoint, f"{module}.prefix_tuning.prefix_gates.T", hidden)
    prefixes = unfold_prefix(_flat(config, checkpoint, backbone.config), backbone.config)
    gated = {index: KeysValues(prefix.keys, prefix.values, gates[index]) for index, prefix in prefixes.items()}
    return create_prefix(gated, backbone.config)


def _flat(config: ConfigFile, checkpoint: Checkpoint, backbone: BackboneConfig) -> Tensor:
    """Keys and values of all layers, [P, 2 * L * width]."""
    length = config.count("prefix_length")
    if config.get("flat", False):
        return checkpoint.take(f"{_TABLE}.control_trans", length * prefix_width(backbone)).view(length, -1)
    table = checkpoint.take(f"{_TABLE}.wte.weight", length, None)
    return evaluate_prefix(table, checkpoint, f"{_TABLE}.control_trans", backbone)
