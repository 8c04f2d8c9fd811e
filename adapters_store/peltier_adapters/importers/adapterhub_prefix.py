"""AdapterHub's prefixes, whose MLP is evaluated and dropped, and its prompts."""

import torch
from peltier_backbone.load import Backbone
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.checkpoint import Checkpoint
from peltier_adapters.importers.config_file import ConfigFile
from peltier_adapters.importers.head import take_dense
from peltier_adapters.importers.piece import Gate, Piece
from peltier_adapters.importers.places import find_places
from peltier_adapters.importers.prefix import KeysValues, create_prefix, unfold_prefix
from peltier_adapters.importers.prompt import create_prompt

_TABLE = "prefix_tuning.prefix_tunings.T.self_prefix"


def read_prefix(config: ConfigFile, checkpoint: Checkpoint, backbone: Backbone, version: str) -> Piece:
    """The part of an encoder's prefixes."""
    if backbone.config.generates:
        raise AdapterError(
            f"{config.where}: a prefix of AdapterHub on a T5 moves the relative positions of the text by its length; "
            "served are prefixes that leave positions alone"
        )
    config.only("leave_out", [], None)
    config.only("non_linearity", "tanh")
    config.ignore("encoder_prefix", "cross_prefix", "bottleneck_size", "use_gating", "shared_gating")
    length = config.count("prefix_length")
    flat = _flat(checkpoint, length, flat=bool(config.get("flat", False)))
    width = 2 * backbone.config.num_attentions * backbone.config.attention_size
    if flat.shape[1] != width:
        raise AdapterError(
            f"{checkpoint.where}: a prefix has {flat.shape[1]} values a position; this backbone takes {width}"
        )
    gates = {index: _gate(checkpoint, module) for module, index in find_places(backbone.config).attentions.items()}
    prefixes = unfold_prefix(flat, backbone.config)
    gated = {index: KeysValues(one.keys, one.values, gates[index]) for index, one in prefixes.items()}
    return create_prefix(gated, backbone.config)


def _flat(checkpoint: Checkpoint, length: int, *, flat: bool) -> Tensor:
    """Keys and values of all layers, [P, 2 * L * width]."""
    if flat:
        return checkpoint.take(f"{_TABLE}.control_trans", None).view(length, -1)
    inner = take_dense(checkpoint, f"{_TABLE}.control_trans.0")
    outer = take_dense(checkpoint, f"{_TABLE}.control_trans.2")
    table = checkpoint.take(f"{_TABLE}.wte.weight", length, None)
    return torch.tanh(table @ inner.weight.T + inner.bias) @ outer.weight.T + outer.bias


def _gate(checkpoint: Checkpoint, module: str) -> Gate | None:
    weight = checkpoint.take_if(f"{module}.prefix_tuning.prefix_gates.T.weight", None, None)
    if weight is None:
        return None
    if len(weight) != 1:
        raise AdapterError(
            f"{checkpoint.where}: keys and values have gates of their own (shared_gating is false); served is one gate"
        )
    return Gate(weight[0], checkpoint.take(f"{module}.prefix_tuning.prefix_gates.T.bias", 1)[0])


def read_prompt(config: ConfigFile, checkpoint: Checkpoint, backbone: Backbone, version: str) -> Piece:
    """The part of a soft prompt, where the backbone takes one."""
    config.only("combine", "prefix")
    config.ignore("prompt_init", "prompt_init_text", "random_uniform_scale")
    table = checkpoint.take(
        "prompt_tuning.prompt_tunings.T.prompt_embedding.weight", config.count("prompt_length"), None
    )
    return create_prompt(table, backbone.config)
