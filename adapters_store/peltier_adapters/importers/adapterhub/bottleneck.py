"""AdapterHub's bottlenecks: seq_bn, double_seq_bn, compacter, compacter++ and their variants."""

import re
from typing import Literal

from peltier_backbone.backbone import Backbone
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.bottleneck import (
    Bottleneck,
    Kind,
    create_bottleneck,
    scaled,
    served_activation,
)
from peltier_adapters.importers.shared.checkpoint import Checkpoint
from peltier_adapters.importers.shared.config_file import ConfigFile
from peltier_adapters.importers.shared.gate import take_gate
from peltier_adapters.importers.shared.imported_part import ImportedPart
from peltier_adapters.importers.shared.map import take_maps, take_rule
from peltier_adapters.importers.shared.module_sites import ModuleSite, find_sites

_WITHOUT_EFFECT = (
    "mh_adapter", "output_adapter", "reduction_factor", "init_weights", "stochastic_depth", "use_gating",
    "adapter_residual_before_ln", "inv_adapter_reduction_factor", "hypercomplex_nonlinearity", "learn_phm",
    "phm_bias", "phm_c_init", "phm_dim", "phm_init_range", "phm_rank", "shared_phm_rule", "factorized_phm_W",
)  # fmt: skip


def read_bottleneck(config: ConfigFile, checkpoint: Checkpoint, backbone: Backbone, version: str) -> ImportedPart:
    """The part. Layers, sizes, gates and factors are those of the tensors, whatever the configuration says."""
    _check(config)
    kind = Kind(
        served_activation(str(config.get("non_linearity")), config.where),
        _input(config, backbone),
        _shared_rule(config, checkpoint),
    )
    places = find_sites(backbone.config).sublayers
    found: dict[ModuleSite, Bottleneck] = {}
    for module, place in places.items():
        name = f"{module}.adapters.T"
        if checkpoint.matches(rf"{re.escape(name)}\..*"):
            found[place] = _take(config, checkpoint, name, backbone.config.hidden_size, kind.rule)
    if not found:
        raise AdapterError(f"{checkpoint.where} has no bottleneck at any layer of this backbone")
    return create_bottleneck(found, kind, backbone.config)


def _check(config: ConfigFile) -> None:
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
    config.ignore(*_WITHOUT_EFFECT)


def _input(config: ConfigFile, backbone: Backbone) -> Literal["output", "normed", "sum"]:
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


def _take(config: ConfigFile, checkpoint: Checkpoint, name: str, hidden: int, rule: Tensor | None) -> Bottleneck:
    down, up = take_maps(checkpoint, f"{name}.adapter_down.0", f"{name}.adapter_up", hidden, rule)
    scale: Tensor | float | None = checkpoint.take_if(f"{name}.scaling", None)
    if scale is None:
        scale = config.number("scaling", 1.0)
    else:
        config.ignore("scaling")
    return Bottleneck(down, scaled(up, scale), take_gate(checkpoint, f"{name}.gate", hidden))
