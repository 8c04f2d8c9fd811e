"""The tensors that the settings of an adapter of AdapterHub promise, by their names below the base model, and their
shapes. They follow the library's own modules: `BottleneckLayer`, `PHMLayer`, `LoRALayer` and `PrefixTuningLayer`."""

import re
import reprlib
from collections.abc import Iterator, Mapping
from typing import Any

from peltier_backbone.checkpoint.config import BackboneConfig, T5Config

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import Checkpoint, ConfigFile
from peltier_adapters.importers.shared.module_sites import find_sites
from peltier_adapters.importers.shared.parts import lora_modules, map_shape, prefix_width

Shapes = dict[str, tuple[int, ...]]
_LAYER = re.compile(r"(?:(encoder|decoder)\.block|layers?)\.(\d+)\.")
_MATRICES = {"query": "q", "key": "k", "value": "v"}
_SITES = {"attention": "mh_adapter", "ffn": "output_adapter"}


def prefix_table(adapter: str) -> str:
    """The module of the prefix of all layers."""
    return f"prefix_tuning.prefix_tunings.{adapter}.self_prefix"


def shared_rule(adapter: str) -> str:
    """The rule of all maps of hypercomplex adapters."""
    return f"shared_parameters.{adapter}.phm_rule"


def check_shapes(checkpoint: Checkpoint, promised: Mapping[str, tuple[int, ...]], where: object) -> None:
    """Refuses a checkpoint whose tensors are not those of `promised`, by the settings `where`, or have other shapes."""
    checkpoint.check_promise("tensor", promised, [*checkpoint], str(where))
    for name, shape in promised.items():
        tensor = checkpoint.take(name)
        if tuple(tensor.shape) != shape:
            raise AdapterError(
                f"{checkpoint.where}: tensor {name!r} has shape {list(tensor.shape)}; {where} promises {list(shape)}"
            )
        checkpoint.put_back({name: tensor})


def bottleneck_tensors(config: ConfigFile, backbone: BackboneConfig, adapter: str) -> Shapes:
    """Those of the bottlenecks at each promised site of each layer."""
    found: Shapes = {}
    config.only("phm_bias", True)
    for module, (site, _) in find_sites(backbone).sublayers.items():
        if not _flag(config, _SITES[site], default=False) or _is_left_out(config, module, backbone):
            continue
        size, name = _size(config, _layer(module, backbone), backbone.hidden_size), f"{module}.adapters.{adapter}"
        found |= _map(config, f"{name}.adapter_down.0", backbone.hidden_size, size)
        found |= _map(config, f"{name}.adapter_up", size, backbone.hidden_size)
        scale = config.get("scaling", 1.0)
        if isinstance(scale, str):
            found[f"{name}.scaling"] = (backbone.hidden_size if scale == "channel" else 1,)
        found |= _gate(config, f"{name}.gate", backbone.hidden_size)
    if shares_rule(config):
        dim = config.count("phm_dim")
        found[shared_rule(adapter)] = (dim, dim, dim)
    return found


def shares_rule(config: ConfigFile) -> bool:
    """Whether all maps have one rule."""
    return _flag(config, "phm_layer", default=False) and _flag(config, "shared_phm_rule", default=True)


def _size(config: ConfigFile, layer: int, hidden: int) -> int:
    """The width of a layer's bottleneck, by a factor for all layers or for each."""
    factor: Any = config.get("reduction_factor")
    if isinstance(factor, dict):
        factor = factor.get(str(layer), factor.get("default"))
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not factor > 0:
        raise AdapterError(
            f"{config.where}: reduction_factor of layer {layer} is {factor!r}; it must be a number above 0"
        )
    return max(1, int(hidden // factor))


def _map(config: ConfigFile, name: str, before: int, after: int) -> Shapes:
    if not _flag(config, "phm_layer", default=False):
        return {f"{name}.weight": (after, before), f"{name}.bias": (after,)}
    dim, rank = config.count("phm_dim"), config.count("phm_rank")
    inner, outer = before // dim, after // dim
    found: Shapes = {f"{name}.b": (after,)}
    if _flag(config, "factorized_phm_W", default=True):
        found |= {f"{name}.W_left": (dim, inner, rank), f"{name}.W_right": (dim, rank, outer)}
    else:
        found[f"{name}.W"] = (dim, inner, outer)
    if not shares_rule(config):
        found[f"{name}.phm_rule"] = (dim, dim, dim)
    return found


def lora_tensors(config: ConfigFile, backbone: BackboneConfig, adapter: str) -> Shapes:
    """Those of the LoRA of each promised projection."""
    found: Shapes = {}
    rank = config.get("r", 8)
    if type(rank) is not int or rank < 1:
        raise AdapterError(f"{config.where}: r is {rank!r}; it must be a positive integer")
    promised = set(_adapted(config, backbone))
    for module, (site, _) in lora_modules(backbone).items():
        if site in promised and not _is_left_out(config, module, backbone):
            before, after = map_shape(site, backbone)
            name = f"{module}.loras.{adapter}"
            found |= {f"{name}.lora_A": (rank, before), f"{name}.lora_B": (after, rank)}
            found |= _gate(config, f"{name}.gate", before)
    return found


def _adapted(config: ConfigFile, backbone: BackboneConfig) -> Iterator[str]:
    """The sites of the projections. In a gated feed-forward layer of a T5 the library adapts `wi_1` alone."""
    matrices = config.get("attn_matrices", ["q", "v"])
    if not isinstance(matrices, list) or not set(map(str, matrices)) <= {*_MATRICES.values()}:
        raise AdapterError(f"{config.where}: attn_matrices is {reprlib.repr(matrices)}; it has some of q, k and v")
    if _flag(config, "selfattn_lora", default=True):
        yield from (site for site, short in _MATRICES.items() if short in matrices)
    if _flag(config, "intermediate_lora", default=False):
        yield "intermediate_factor" if isinstance(backbone, T5Config) and backbone.gated else "intermediate"
    if _flag(config, "output_lora", default=False):
        yield "output"


def prefix_tensors(config: ConfigFile, backbone: BackboneConfig, adapter: str) -> Shapes:
    """Those of an encoder's prefix: a table and its MLP, or keys and values, and the gates."""
    length, hidden, width = config.count("prefix_length"), backbone.hidden_size, prefix_width(backbone)
    table = prefix_table(adapter)
    mlp = f"{table}.control_trans"
    if _flag(config, "flat", default=False):
        found: Shapes = {mlp: (length * width,)}
    else:
        size = config.count("bottleneck_size")
        found = {f"{table}.wte.weight": (length, hidden)}
        found |= {f"{mlp}.0.weight": (size, hidden), f"{mlp}.0.bias": (size,)}
        found |= {f"{mlp}.2.weight": (width, size), f"{mlp}.2.bias": (width,)}
    for module in find_sites(backbone).attentions:
        found |= _gate(config, f"{module}.prefix_tuning.prefix_gates.{adapter}", hidden)
    return found


def _gate(config: ConfigFile, name: str, width: int) -> Shapes:
    if not _flag(config, "use_gating", default=False):
        return {}
    return {f"{name}.weight": (1, width), f"{name}.bias": (1,)}


def _is_left_out(config: ConfigFile, module: str, backbone: BackboneConfig) -> bool:
    layers = config.get("leave_out", [])
    if not isinstance(layers, list) or not all(type(layer) is int for layer in layers):
        raise AdapterError(f"{config.where}: leave_out is {reprlib.repr(layers)}; it must be a list of layers")
    return _layer(module, backbone) in layers


def _layer(module: str, backbone: BackboneConfig) -> int:
    """The number of a module's layer, through the encoder and the decoder."""
    match = _LAYER.search(f"{module}.")
    assert match is not None, "every such module is in a layer"
    return int(match[2]) + (backbone.num_layers if match[1] == "decoder" else 0)


def _flag(config: ConfigFile, key: str, *, default: bool) -> bool:
    value = config.get(key, default)
    if not isinstance(value, bool):
        raise AdapterError(f"{config.where}: {key} is {value!r}; it must be true or false")
    return value
