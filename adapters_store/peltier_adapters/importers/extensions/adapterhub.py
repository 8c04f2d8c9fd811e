"""Reads directories that AdapterHub's `adapters` saves (docs/methods.md#adapterhub): bottlenecks (seq_bn,
double_seq_bn, compacter, compacter++ and their variants), LoRA, prefixes on encoders, and unions of them, with heads.
UniPELT is a union with gated members."""

import re
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.config import BackboneConfig, DebertaConfig
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.extensions.bottleneck import (
    Bottleneck,
    Kind,
    create_bottleneck,
    scaled,
    served_activation,
    take_maps,
    take_rule,
)
from peltier_adapters.importers.extensions.hub_head import check_model, read_head
from peltier_adapters.importers.extensions.hub_tensors import (
    Shapes,
    bottleneck_tensors,
    check_shapes,
    lora_tensors,
    prefix_table,
    prefix_tensors,
    shared_rule,
    shares_rule,
)
from peltier_adapters.importers.shared.checkpoint import Checkpoint, ConfigFile, find_file, read_checkpoint, read_config
from peltier_adapters.importers.shared.imported import ImportedAdapter, ImportedPart, take_gate
from peltier_adapters.importers.shared.module_sites import ModuleSite, base_names, find_sites
from peltier_adapters.importers.shared.parts import (
    KeysValues,
    create_lora,
    create_prefix,
    evaluate_prefix,
    lora_modules,
    prefix_width,
    take_pair,
    unfold_prefix,
)

_NO_EFFECT_ON_BOTTLENECK = (
    "init_weights", "stochastic_depth", "adapter_residual_before_ln", "inv_adapter_reduction_factor",
    "hypercomplex_nonlinearity", "learn_phm", "phm_c_init", "phm_dim", "phm_init_range", "phm_rank", "shared_phm_rule",
    "factorized_phm_W",
)  # fmt: skip
_SCALED_SINCE = (1, 1)  # adapters 1.1
_FILES = ("adapter.safetensors", "pytorch_adapter.bin")
_DESCRIPTION = ("model_class", "model_name", "type", "id", "config_id")
# The library saves the prefix of all layers again below each of them.
_PREFIX_COPY = r".+\.prefix_tuning\.pool\.(.*)"
_WITHOUT_EFFECT = ("architecture", "init_weights_seed", "dropout", "dtype")
# In the order in which the parts act, as in Peltier's presets.
_ORDER = ("prefix_tuning", "lora", "bottleneck")


@dataclass(frozen=True)
class Saved:
    """The outer settings of a saved adapter."""

    outer: ConfigFile
    name: str
    version: str


def read_bottleneck(config: ConfigFile, checkpoint: Checkpoint, backbone: Backbone, saved: Saved) -> ImportedPart:
    """The part."""
    kind = Kind(
        served_activation(str(config.get("non_linearity")), config.where),
        _bottleneck_input(config, backbone),
        _shared_rule(config, checkpoint, saved.name),
    )
    places = find_sites(backbone.config).sublayers
    found: dict[ModuleSite, Bottleneck] = {}
    for module, place in places.items():
        name = f"{module}.adapters.{saved.name}"
        if checkpoint.matches(rf"{re.escape(name)}\..*"):
            found[place] = _take_bottleneck(config, checkpoint, name, backbone.config.hidden_size, kind.rule)
    return create_bottleneck(found, kind, backbone.config)


def _check_bottleneck(config: ConfigFile, backbone: Backbone) -> None:
    if config.get("is_parallel", False):
        raise AdapterError(
            f"{config.where}: parallel adapters, which read the sub-layer's input, are not supported; only those "
            "that read its output"
        )
    if backbone.config.family == "distilbert":
        raise AdapterError(f"{config.where}: bottlenecks of AdapterHub on a DistilBERT are not supported")
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


def _shared_rule(config: ConfigFile, checkpoint: Checkpoint, adapter: str) -> Tensor | None:
    return take_rule(checkpoint, shared_rule(adapter)) if shares_rule(config) else None


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


def read_lora(config: ConfigFile, checkpoint: Checkpoint, backbone: Backbone, saved: Saved) -> ImportedPart:
    """The part; a gate replaces the scale alpha / r."""
    alpha = config.number("alpha", 8)
    pairs = {}
    for module, place in lora_modules(backbone.config).items():
        name = f"{module}.loras.{saved.name}"
        if f"{name}.lora_A" in checkpoint:
            pair = take_pair(checkpoint, (f"{name}.lora_A", f"{name}.lora_B"), place[0], backbone.config)
            scale = 1.0 if _is_old(saved.version) else alpha / len(pair.a)
            gate = take_gate(checkpoint, f"{name}.gate", pair.a.shape[1])
            pairs[place] = replace(pair, scale=scale, gate=gate)
    return create_lora(pairs, backbone.config)


def _check_lora(config: ConfigFile, backbone: Backbone) -> None:
    own = backbone.config
    if isinstance(own, DebertaConfig) and own.shares_maps and config.get("selfattn_lora", True):
        config.only("attn_matrices", ["v"], [])  # the others act on the queries and keys of distances too
    config.only("composition_mode", "add")
    config.only("use_dora", False)
    for key in ("vera_d", "vera_b"):
        config.only(key, None)
    config.ignore("init_weights")


def _is_old(version: str) -> bool:
    """Whether LoRA had a scale of 1, whatever alpha is, as before 1.1.0 (docs/methods.md#adapterhub)."""
    match = re.match(r"adapters\.(\d+)\.(\d+)", version)
    return match is not None and (int(match[1]), int(match[2])) < _SCALED_SINCE


def read_prefix(config: ConfigFile, checkpoint: Checkpoint, backbone: Backbone, saved: Saved) -> ImportedPart:
    """The part of an encoder's prefixes."""
    gates, hidden = {}, backbone.config.hidden_size
    for module, index in find_sites(backbone.config).attentions.items():
        gates[index] = take_gate(checkpoint, f"{module}.prefix_tuning.prefix_gates.{saved.name}", hidden)
    prefixes = unfold_prefix(
        _flat_prefix(config, checkpoint, backbone.config, prefix_table(saved.name)), backbone.config
    )
    gated = {index: KeysValues(prefix.keys, prefix.values, gates[index]) for index, prefix in prefixes.items()}
    return create_prefix(gated, backbone.config)


def _check_prefix(config: ConfigFile, backbone: Backbone) -> None:
    if backbone.config.generates:
        raise AdapterError(
            f"{config.where}: a prefix of AdapterHub on a T5 shifts the relative positions of the text by its length; "
            "only prefixes that do not shift positions are supported"
        )
    if backbone.config.family == "distilbert" or not find_sites(backbone.config).attentions:
        raise AdapterError(f"{config.where}: a prefix of AdapterHub on a {backbone.config.family} is not supported")
    config.only("leave_out", [], None)
    config.only("non_linearity", "tanh")
    config.ignore("encoder_prefix", "cross_prefix", "bottleneck_size", "shared_gating")
    if config.get("use_gating", False) and not config.get("shared_gating", True):
        raise AdapterError(
            f"{config.where}: keys and values have separate gates (shared_gating is false); only one gate is supported"
        )


def _flat_prefix(config: ConfigFile, checkpoint: Checkpoint, backbone: BackboneConfig, module: str) -> Tensor:
    """Keys and values of all layers, [P, 2 * L * width]."""
    length = config.count("prefix_length")
    if config.get("flat", False):
        return checkpoint.take(f"{module}.control_trans", length * prefix_width(backbone)).view(length, -1)
    table = checkpoint.take(f"{module}.wte.weight", length, None)
    return evaluate_prefix(table, checkpoint, f"{module}.control_trans", backbone)


class _Reader(NamedTuple):
    """What reads one kind of adapter: `check` refuses settings that are not supported, `tensors` are those that the
    settings promise, and `read` takes them."""

    check: Callable[[ConfigFile, Backbone], None]
    tensors: Callable[[ConfigFile, BackboneConfig, str], Shapes]
    read: Callable[[ConfigFile, Checkpoint, Backbone, Saved], ImportedPart]


_READERS: Mapping[str, _Reader] = {
    "bottleneck": _Reader(_check_bottleneck, bottleneck_tensors, read_bottleneck),
    "lora": _Reader(_check_lora, lora_tensors, read_lora),
    "prefix_tuning": _Reader(_check_prefix, prefix_tensors, read_prefix),
}


def read_adapterhub(path: Path, backbone: Backbone) -> ImportedAdapter:
    """The adapter in directory `path`; raises `AdapterError` for what is not supported."""
    saved = _read_outer(path, backbone)
    members = _members(saved)
    checkpoint = _without_copies(read_checkpoint(find_file(path, _FILES)))
    _check_tensors(members, checkpoint, backbone, saved)
    pieces = [_read(kind, members[kind], checkpoint, backbone, saved) for kind in _ORDER if kind in members]
    checkpoint.finish()
    gated = [piece for piece in pieces if getattr(piece.spec, "gated", False)]
    if gated and backbone.config.generates:
        raise AdapterError(
            f"{saved.outer.where}: AdapterHub's gates average over the whole answer, but during generation a T5 knows "
            "only its beginning; on a T5 only adapters without gates are supported"
        )
    head = read_head(path, saved.name, backbone)
    origin = {"library": "adapterhub", "version": saved.version, "name": saved.name}
    method = "unipelt" if len(gated) == len(pieces) > 1 else "-".join(members)
    return ImportedAdapter(f"adapterhub-{method}", pieces, head.piece, head.labels, head.task_type, origin)


def _read_outer(path: Path, backbone: Backbone) -> Saved:
    outer = read_config(find_file(path, ("adapter_config.json",)))
    check_model(outer, backbone.config)
    name = outer.get("name")
    if not isinstance(name, str):
        raise AdapterError(f"{outer.where}: name is {name!r}; it must be the adapter's name")
    version = str(outer.get("version", "unknown"))
    outer.ignore("config", *_DESCRIPTION)
    outer.finish()
    return Saved(outer, name, version)


def _members(saved: Saved) -> dict[str, ConfigFile]:
    """The configuration of each member of a union, or of a single adapter, by its architecture."""
    config = saved.outer.get("config")
    union = isinstance(config, dict) and config.get("architecture") == "union"
    raw = config.get("configs") if isinstance(config, dict) and union else [config]
    if not isinstance(raw, list) or not raw or not all(isinstance(member, dict) for member in raw):
        raise AdapterError(f"{saved.outer.where}: config is {reprlib.repr(config)}; it must be an adapter's settings")
    members: dict[str, ConfigFile] = {}
    for member in raw:
        kind = member.get("architecture") or "bottleneck"
        if kind == "prompt_tuning":
            raise AdapterError(
                f"{saved.outer.where}: AdapterHub adds a soft prompt after an encoder's embeddings, without positions "
                "or norm; soft prompts are supported only on a T5"
            )
        if not isinstance(kind, str) or kind not in _READERS or kind in members:
            twice = " twice" if kind in [*members] else ""
            raise AdapterError(
                f"{saved.outer.where}: architecture {kind!r} is not supported{twice}; it is one of "
                f"{', '.join(_READERS)}, or a union of them"
            )
        members[kind] = ConfigFile({**member, "version": saved.version}, saved.outer.where)
    return members


def _check_tensors(members: Mapping[str, ConfigFile], checkpoint: Checkpoint, backbone: Backbone, saved: Saved) -> None:
    """Refuses settings that are not supported, and tensors that are not those that the settings promise."""
    promised: Shapes = {}
    for kind, config in members.items():
        _READERS[kind].check(config, backbone)
        own = _READERS[kind].tensors(config, backbone.config, saved.name)
        if not own:
            raise AdapterError(f"{config.where}: the settings of {kind!r} adapt no layer of this backbone")
        promised |= own
    rule = shared_rule(saved.name)
    if rule in promised and rule not in checkpoint:
        raise AdapterError(
            f"{checkpoint.where} lacks the phm_rule that all layers share, as do files saved from a "
            "T5ForConditionalGeneration; save the adapter again from a T5AdapterModel"
        )
    check_shapes(checkpoint, promised, saved.outer.where)


def _without_copies(checkpoint: Checkpoint) -> Checkpoint:
    """Names below the base model, without the copies of a prefix in each layer (docs/methods.md#adapterhub)."""
    whole = checkpoint.renamed(base_names)
    for copy in whole.matches(_PREFIX_COPY):
        name = f"prefix_tuning.{copy[1]}"
        shared, own = whole.take(name), whole.take(copy[0])
        whole.put_back({name: shared})
        if not torch.equal(own, shared):
            raise AdapterError(f"{whole.where}: tensor {copy[0]!r} is not a copy of the prefix that all layers share")
    return whole


def _read(kind: str, config: ConfigFile, checkpoint: Checkpoint, backbone: Backbone, saved: Saved) -> ImportedPart:
    config.ignore("version", *_WITHOUT_EFFECT)
    piece = _READERS[kind].read(config, checkpoint, backbone, saved)
    config.finish()
    return piece
