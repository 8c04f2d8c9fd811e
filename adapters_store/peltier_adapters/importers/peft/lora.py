"""Reads PEFT's LoRA, with patterns of ranks and alphas and rank-stabilised scales; refuses DoRA and changed base
weights."""

import math
import re
import reprlib
from collections.abc import Mapping

from peltier_backbone.config import BackboneConfig
from peltier_backbone.load import Backbone

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import Checkpoint
from peltier_adapters.importers.shared.config_file import ConfigFile
from peltier_adapters.importers.shared.imported_part import ImportedPart
from peltier_adapters.importers.shared.lora import LoraPair, check_target, create_lora
from peltier_adapters.importers.shared.module_sites import ModuleSite, base_names, find_sites

_WRAPPER = "base_model.model."
_A = ".lora_A.weight"
# Others (pissa, olora, corda, loftq, …) change the base model's weights, and their adapters need these.
_PLAIN_STARTS = (True, False, "gaussian", "eva", "orthogonal")


def read_lora(config: ConfigFile, checkpoint: Checkpoint, backbone: Backbone) -> tuple[list[ImportedPart], Checkpoint]:
    """The LoRA part, and the rest of the checkpoint."""
    _check(config, checkpoint)
    inner = checkpoint.renamed(lambda name: name.removeprefix(_WRAPPER))
    modules = [name.removesuffix(_A) for name in inner if name.endswith(_A)]
    alphas = {base_names(module): _alpha(module, config) for module in modules}
    # With bias "all" PEFT saves a wrapped classifier three times, and adds the wrapper to names of frozen layers.
    inner.skip(r".*\.(modules_to_save|original_module)\..*")
    rest = inner.renamed(lambda name: base_names(name.replace(".base_layer.", ".")))
    pairs = _take_pairs(rest, alphas, backbone.config, stable=bool(config.get("use_rslora", False)))
    return [create_lora(pairs, backbone.config)] if pairs else [], rest


def _check(config: ConfigFile, checkpoint: Checkpoint) -> None:
    if config.get("use_dora", False) or checkpoint.matches(r".*lora_magnitude_vector.*"):
        raise AdapterError(f"{config.where}: DoRA, which rescales the frozen weights, is not supported; LoRA is")
    config.only("init_lora_weights", *_PLAIN_STARTS)
    config.only("bias", "none", "all", "lora_only")
    # The tensors have the ranks and the biases; dropout applies only to training.
    config.ignore(
        "r", "rank_pattern", "lora_dropout", "fan_in_fan_out", "eva_config", "megatron_core", "qalora_group_size"
    )


def _take_pairs(
    rest: Checkpoint, alphas: Mapping[str, float], config: BackboneConfig, *, stable: bool
) -> dict[ModuleSite, LoraPair]:
    projections = find_sites(config).projections
    pairs = {}
    for module, alpha in alphas.items():
        if module not in projections:
            raise AdapterError(
                f"{rest.where}: LoRA adapts {module!r}; only projections of this backbone's layers are supported"
            )
        place = projections[module]
        check_target(place[0])
        a = rest.take(f"{module}{_A}", None, config.hidden_size)
        b = rest.take(f"{module}.lora_B.weight", config.attention_size, len(a))
        pairs[place] = LoraPair(a, b, alpha / (math.sqrt(len(a)) if stable else len(a)))
    return pairs


def _alpha(module: str, config: ConfigFile) -> float:
    """The alpha of the first pattern that matches the end of the module's name, as in PEFT, or the default."""
    patterns, default = config.get("alpha_pattern", {}), config.number("lora_alpha", 8)
    if not isinstance(patterns, dict) or not all(type(alpha) in (int, float) for alpha in patterns.values()):
        raise AdapterError(f"{config.where}: alpha_pattern is {reprlib.repr(patterns)}; it must map names to numbers")
    try:
        key = next((key for key in patterns if re.match(rf"(.*\.)?({key})$", module)), None)
    except re.error:
        raise AdapterError(f"{config.where}: alpha_pattern {patterns} has an invalid regular expression") from None
    return default if key is None else ConfigFile(patterns, config.where).number(key, default)
