"""The parts of AdapterHub's adapters: bottlenecks (seq_bn, double_seq_bn, compacter, compacter++ and their variants),
LoRA, and prefixes on encoders, whose MLP is evaluated and dropped."""

import re
from dataclasses import replace
from typing import Literal

from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.config import BackboneConfig
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.bottleneck import (
    Bottleneck,
    Kind,
    create_bottleneck,
    scaled,
    served_activation,
    take_maps,
    take_rule,
)
from peltier_adapters.importers.shared.checkpoint import Checkpoint, ConfigFile
from peltier_adapters.importers.shared.imported import ImportedPart, take_gate
from peltier_adapters.importers.shared.lora import LoraNames, create_lora, lora_modules, take_pair
from peltier_adapters.importers.shared.module_sites import ModuleSite, find_sites
from peltier_adapters.importers.shared.prefix import (
    KeysValues,
    create_prefix,
    evaluate_prefix,
    prefix_width,
    unfold_prefix,
)

_NO_EFFECT_ON_BOTTLENECK = (
    "mh_adapter", "output_adapter", "reduction_factor", "init_weights", "stochastic_depth", "use_gating",
    "adapter_residual_before_ln", "inv_adapter_reduction_factor", "hypercomplex_nonlinearity", "learn_phm",
    "phm_bias", "phm_c_init", "phm_dim", "phm_init_range", "phm_rank", "shared_phm_rule", "factorized_phm_W",
)  # fmt: skip
_SCALED_SINCE = (1, 1)  # adapters 1.1
_PREFIX_TABLE = "prefix_tuning.prefix_tunings.T.self_prefix"


def read_bottleneck(config: ConfigFile, checkpoint: Checkpoint, backbone: Backbone, version: str) -> ImportedPart:
    """The part. Layers, sizes, gates and factors are read from the tensors, not from the configuration."""
    _check_bottleneck(config)
    kind = Kind(
        served_activation(str(config.get("non_linearity")), config.where),
        _bottleneck_input(config, backbone),
        _shared_rule(config, checkpoint),
    )
    places = find_sites(backbone.config).sublayers
    found: dict[ModuleSite, Bottleneck] = {}
    for module, place in places.items():
        name = f"{module}.adapters.T"
        if checkpoint.matches(rf"{re.escape(name)}\..*"):
            found[place] = _take_bottleneck(config, checkpoint, name, backbone.config.hidden_size, kind.rule)
    if not found:
        raise AdapterError(f"{checkpoint.where} has no bottleneck at any layer of this backbone")
    return create_bottleneck(found, kind, backbone.config)


def _check_bottleneck(config: ConfigFile) -> None:
    if config.get("is_parallel", False):
        raise AdapterError(
            f"{config.where}: parallel adapters, which read the sub-layer's input, are not supported; only those "
            "that read its output"
        )
    for key in ("ln_before", "ln_after", "cross_adapter", "shared_W_phm", "factorized_phm_rule"):
        config.only(key, False)
    for key in ("original_ln_after", "residual_before_ln"):
        config.only(key, True)
    config.only("inv_adapter", None)
    config.ignore(*_NO_EFFECT_ON_BOTTLENECK)


def _bottleneck_input(config: ConfigFile, backbone: Backbone) -> Literal["output", "normed", "sum"]:
    """The adapter's input. With original_ln_before it is the sum with the residual, after the next norm if there is one
    (docs/methods.md#adapterhub)."""
    if not config.get("original_ln_before", False):
        return "output"
    return "sum" if backbone.config.generates else "normed"


def _shared_rule(config: ConfigFile, checkpoint: Checkpoint) -> Tensor | None:
    if not config.get("phm_layer", False) or not config.get("shared_phm_rule", True):
        return None
    rule = take_rule(checkpoint, "shared_parameters.T.phm_rule")
    if rule is None:
        raise AdapterError(
            f"{checkpoint.where} lacks the phm_rule that all layers share, as do files saved from a "
            "T5ForConditionalGeneration; save the adapter again from a T5AdapterModel"
        )
    return rule


def _take_bottleneck(
    config: ConfigFile, checkpoint: Checkpoint, name: str, hidden: int, rule: Tensor | None
) -> Bottleneck:
    down, up = take_maps(checkpoint, f"{name}.adapter_down.0", f"{name}.adapter_up", hidden, rule)
    scale: Tensor | float | None = checkpoint.take_if(f"{name}.scaling", None)
    if scale is None:
        scale = config.number("scaling", 1.0)
    else:
        config.ignore("scaling")
    return Bottleneck(down, scaled(up, scale), take_gate(checkpoint, f"{name}.gate", hidden))


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
    return match is not None and (int(match[1]), int(match[2])) < _SCALED_SINCE


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
    prefixes = unfold_prefix(_flat_prefix(config, checkpoint, backbone.config), backbone.config)
    gated = {index: KeysValues(prefix.keys, prefix.values, gates[index]) for index, prefix in prefixes.items()}
    return create_prefix(gated, backbone.config)


def _flat_prefix(config: ConfigFile, checkpoint: Checkpoint, backbone: BackboneConfig) -> Tensor:
    """Keys and values of all layers, [P, 2 * L * width]."""
    length = config.count("prefix_length")
    if config.get("flat", False):
        return checkpoint.take(f"{_PREFIX_TABLE}.control_trans", length * prefix_width(backbone)).view(length, -1)
    table = checkpoint.take(f"{_PREFIX_TABLE}.wte.weight", length, None)
    return evaluate_prefix(table, checkpoint, f"{_PREFIX_TABLE}.control_trans", backbone)
