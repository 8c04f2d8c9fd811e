"""Reads PEFT's LoRA, with patterns of ranks and alphas and rank-stabilised scales; refuses DoRA and changed base
weights."""

import math
import re
import reprlib
from collections.abc import Mapping
from dataclasses import replace

from peltier_backbone.backbone import Backbone
from peltier_backbone.bert.bert import Bert
from peltier_backbone.checkpoint.config import BackboneConfig

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import Checkpoint
from peltier_adapters.importers.shared.config_file import ConfigFile
from peltier_adapters.importers.shared.imported_part import ImportedPart
from peltier_adapters.importers.shared.lora import LoraNames, LoraPair, create_lora, lora_modules, take_pair
from peltier_adapters.importers.shared.module_sites import ModuleSite, base_names

_WRAPPER = "base_model.model."
_A, _B = ".lora_A.weight", ".lora_B.weight"
_POOLER = "pooler.dense"
# Others (pissa, olora, corda, loftq, …) change the base model's weights, and their adapters need these.
_PLAIN_STARTS = (True, False, "gaussian", "eva", "orthogonal")


def read_lora(config: ConfigFile, checkpoint: Checkpoint, backbone: Backbone) -> tuple[list[ImportedPart], Checkpoint]:
    """The LoRA part, and the rest of the checkpoint."""
    _check(config, checkpoint)
    inner = checkpoint.renamed(lambda name: name.removeprefix(_WRAPPER))
    modules = [name.removesuffix(_A) for name in inner if name.endswith(_A)]
    stable = bool(config.get("use_rslora", False))
    alphas = {base_names(f"{module}{_A}").removesuffix(_A): _alpha(module, config) for module in modules}
    # With bias "all" PEFT saves a wrapped classifier three times, and adds the wrapper to names of frozen layers.
    inner.skip(r".*\.(modules_to_save|original_module)\..*")
    rest = inner.renamed(lambda name: base_names(name.replace(".base_layer.", ".")))
    if _POOLER in alphas:
        _merge_pooler(rest, alphas.pop(_POOLER), backbone, stable=stable)
    pairs = _take_pairs(rest, alphas, backbone.config, stable=stable)
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
    modules = lora_modules(config)
    pairs = {}
    for module, alpha in alphas.items():
        if module not in modules:
            raise AdapterError(
                f"{rest.where}: LoRA adapts {module!r}; only linear maps of this backbone's layers are supported"
            )
        names = LoraNames(f"{module}{_A}", f"{module}{_B}")
        pair = take_pair(rest, names, alpha, modules[module][0], config)
        pairs[modules[module]] = replace(pair, scale=alpha / math.sqrt(len(pair.a))) if stable else pair
    return pairs


def _merge_pooler(rest: Checkpoint, alpha: float, backbone: Backbone, *, stable: bool) -> None:
    """Puts the pooler with its LoRA among the tensors of `rest`, where it is the tanh layer of the head."""
    pooler = backbone.model.pooler if isinstance(backbone.model, Bert) else None
    hidden = backbone.config.hidden_size
    if pooler is None:
        raise AdapterError(f"{rest.where}: LoRA adapts the pooler, which this backbone does not have")
    a = rest.take(f"{_POOLER}{_A}", None, hidden)
    b = rest.take(f"{_POOLER}{_B}", hidden, len(a))
    scale = alpha / (math.sqrt(len(a)) if stable else len(a))
    own = {} if f"{_POOLER}.bias" in rest else {f"{_POOLER}.bias": pooler.bias.cpu()}
    rest.put_back({f"{_POOLER}.weight": pooler.weights()[0].cpu().float() + scale * b @ a, **own})


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
