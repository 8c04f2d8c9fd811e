"""Makes parts of foreign adapters: LoRA pairs with any ranks and scales (scales are multiplied into the up maps, ranks
zero-padded), prefixes, soft prompts, and trained norms and biases (untrained ones get the backbone's values)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.bert.bert import Bert
from peltier_backbone.checkpoint.config import BackboneConfig, DebertaConfig
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import Checkpoint
from peltier_adapters.importers.shared.head import take_dense
from peltier_adapters.importers.shared.imported import ImportedGate, ImportedPart, stacked, stacked_gates
from peltier_adapters.importers.shared.module_sites import ModuleSite, ModuleSites, find_sites
from peltier_adapters.parts.bias import backbone_bias
from peltier_adapters.parts.norm import backbone_norms
from peltier_adapters.spec.parts import (
    ALL_LINEAR,
    FEED_FORWARD,
    BiasSite,
    BiasSpec,
    LoraSpec,
    LoraStack,
    LoraTarget,
    NormSpec,
    PrefixSpec,
    PromptSpec,
)

# The maps of each projection, in the order of its columns: the target, and the number of the map among its own.
_Map = tuple[LoraTarget, int]
MAPS: dict[str, tuple[_Map, ...]] = {
    "query": (("query", 0),),
    "key": (("key", 0),),
    "value": (("value", 0),),
    "query_key_value": (("query", 0), ("key", 0), ("value", 0)),
    "attention_output": (("output", 0),),
    "intermediate": (("intermediate", 0),),
    "intermediate_factor": (("intermediate", 1),),
    "gated_intermediate": (("intermediate", 0), ("intermediate", 1)),
    "output": (("ffn_output", 0),),
}


@dataclass(frozen=True)
class LoraPair:
    """y + scale * (x a^T) b^T on one projection; a [r, in], b [out, r]. A gate replaces the scale
    (docs/methods/lora.md)."""

    a: Tensor
    b: Tensor
    scale: float = 1.0
    gate: ImportedGate | None = None

    @property
    def scaled_b(self) -> Tensor:
        return self.b if self.gate is not None else self.b * self.scale


def lora_modules(config: BackboneConfig) -> dict[str, ModuleSite]:
    """The modules that a LoRA part can adapt."""
    projections = find_sites(config).projections
    return {module: place for module, place in projections.items() if place[0] in MAPS}


def find_lora_module(method: str, module: str, rest: Checkpoint, config: BackboneConfig) -> ModuleSite:
    """The projection that `method` adapts; an `AdapterError` if no part acts there."""
    found = lora_modules(config).get(module)
    if found is not None:
        return found
    rule = "only linear maps of this backbone's layers are supported"
    if isinstance(config, DebertaConfig) and config.shares_maps:
        rule = (
            "on a DeBERTa whose distances share the maps of queries and keys (share_att_key) only value_proj and the "
            "maps named dense of its layers are supported"
        )
    raise AdapterError(f"{rest.where}: {method} adapts {module!r}; {rule}")


def take_pair(
    checkpoint: Checkpoint, names: tuple[str, str], site: str, config: BackboneConfig, rank: int | None = None
) -> LoraPair:
    """The pair of a projection with a scale of 1, whose tensors a and b have these names. Raises an `AdapterError` for
    shapes that are not the projection's, and for another rank than that of the configuration, if it says one."""
    before, after = map_shape(site, config)
    a = take_down(checkpoint, names[0], before, rank)
    return LoraPair(a, checkpoint.take(names[1], after, len(a)))


def take_down(checkpoint: Checkpoint, name: str, before: int, rank: int | None) -> Tensor:
    """The map [rank, before] to the rank that the configuration says, if it says one."""
    a = checkpoint.take(name, None, before)
    if rank not in (None, len(a)):
        raise AdapterError(f"{checkpoint.where}: tensor {name!r} has the rank {len(a)}; its configuration says {rank}")
    return a


def map_shape(site: str, config: BackboneConfig) -> tuple[int, int]:
    """The widths of the input and of the output of a projection."""
    stack = _find_stack(site, config)
    return stack.before, len(MAPS[site]) * stack.after


def _find_stack(site: str, config: BackboneConfig) -> LoraStack:
    target, _ = MAPS[site][0]
    every = LoraSpec(targets=ALL_LINEAR, rank=1, alpha=1)
    return next(stack for stack in every.stacks(config) if target in stack.maps)


def create_lora(pairs: Mapping[ModuleSite, LoraPair], config: BackboneConfig) -> ImportedPart:
    """The part of `pairs` by projection and its attention or block."""
    gated = {place for place, pair in pairs.items() if pair.gate is not None}
    if gated and gated != set(pairs):
        raise AdapterError(f"{len(gated)} of {len(pairs)} LoRA projections are gated; all or none must be")
    found = {target for site, _ in pairs for target, _ in MAPS[site]}
    rank = max(len(pair.a) for pair in pairs.values())
    targets = tuple(target for target in ALL_LINEAR if target in found)
    skip = min(_place(site, number, config) for site, number in pairs)
    spec = LoraSpec(targets=targets, rank=rank, alpha=float(rank), gated=bool(gated), skip=skip)
    tensors = (_tensors(spec, stack, pairs) for stack in spec.stacks(config))
    return ImportedPart(spec, {name: tensor for own in tensors for name, tensor in own.items()})


def _place(site: str, number: int, config: BackboneConfig) -> int:
    in_blocks = MAPS[site][0][0] in FEED_FORWARD
    return config.place_block(number) if in_blocks else config.place_attention(number)


def _tensors(spec: LoraSpec, stack: LoraStack, pairs: Mapping[ModuleSite, LoraPair]) -> dict[str, Tensor]:
    placed = {}
    for (site, number), pair in pairs.items():
        for (target, which), b in zip(MAPS[site], pair.b.chunk(len(MAPS[site])), strict=True):
            if target in stack.maps:
                place = stack.maps.index(target) + which, stack.numbers.index(number)
                placed[place] = replace(pair, b=b)
    leading = len(stack.maps), len(stack.numbers)
    gates = {place: pair.gate for place, pair in placed.items() if pair.gate is not None}
    tensors = {
        "down": stacked({at: pair.a.T for at, pair in placed.items()}, leading, (stack.before, spec.rank)),
        "up": stacked({at: pair.scaled_b.T for at, pair in placed.items()}, leading, (spec.rank, stack.after)),
    } | stacked_gates(gates, leading, stack.before)
    return {name + stack.suffix: tensor for name, tensor in tensors.items()}


@dataclass(frozen=True)
class KeysValues:
    """Keys and values [P, width] of one attention, and the gate that scales both."""

    keys: Tensor
    values: Tensor
    gate: ImportedGate | None = None


def prefix_width(config: BackboneConfig) -> int:
    """Values of one position of an encoder's prefix: a key and a value for each layer."""
    return 2 * config.num_attentions * config.attention_size


def evaluate_prefix(table: Tensor, checkpoint: Checkpoint, mlp: str, config: BackboneConfig) -> Tensor:
    """The prefix [P, 2 * L * width] of a table [P, embedding] after the layers `mlp`.0 and `mlp`.2 with a tanh between
    them, which serving does not need (docs/methods/prefix.md)."""
    inner = take_dense(checkpoint, f"{mlp}.0", None, table.shape[1])
    outer = take_dense(checkpoint, f"{mlp}.2", prefix_width(config), len(inner.weight))
    return torch.tanh(table @ inner.weight.T + inner.bias) @ outer.weight.T + outer.bias


def unfold_prefix(flat: Tensor, config: BackboneConfig) -> dict[int, KeysValues]:
    """Keys and values by attention of an encoder's [P, 2 * L * width]: layer i has rows 2i and 2i + 1."""
    tables = flat.view(len(flat), 2 * config.num_attentions, config.attention_size)
    return {i: KeysValues(tables[:, 2 * i], tables[:, 2 * i + 1]) for i in range(config.num_attentions)}


def create_prefix(
    prefixes: Mapping[int, KeysValues], config: BackboneConfig, *, shifts_positions: bool = False
) -> ImportedPart:
    """The part of `prefixes`, one for each attention. None may be missing, because a zero key has an effect."""
    if len(prefixes) != config.num_attentions:
        raise AdapterError(f"{len(prefixes)} attentions have prefixes; all {config.num_attentions} must have one")
    gates = {(index,): prefix.gate for index, prefix in prefixes.items() if prefix.gate is not None}
    if len(gates) not in (0, config.num_attentions):
        raise AdapterError(f"{len(gates)} of {len(prefixes)} prefixes are gated; all or none must be")
    length = len(prefixes[0].keys)
    leading, shape = (config.num_attentions,), (length, config.attention_size)
    spec = PrefixSpec(length=length, gated=bool(gates), shifts_positions=shifts_positions)
    tensors = {
        "keys": stacked({(index,): prefix.keys for index, prefix in prefixes.items()}, leading, shape),
        "values": stacked({(index,): prefix.values for index, prefix in prefixes.items()}, leading, shape),
    }
    return ImportedPart(spec, tensors | stacked_gates(gates, leading, config.hidden_size))


def create_prompt(table: Tensor, config: BackboneConfig) -> ImportedPart:
    """The part of `table` [P, hidden]; raises `AdapterError` if the backbone has no soft prompts."""
    spec = PromptSpec(length=len(table))
    problems = spec.problems(config)
    if problems:
        raise AdapterError(problems[0])
    return ImportedPart(spec, {"weight": table})


def take_norms(checkpoint: Checkpoint, places: ModuleSites, backbone: Backbone) -> list[ImportedPart]:
    """The part of the norm weights and biases in `checkpoint`, if there are any."""
    found: dict[str, dict[int, Tensor]] = {"weight": {}, "bias": {}}
    for module, index in places.norms.items():
        for name, tensors in found.items():
            tensor = checkpoint.take_if(f"{module}.{name}", backbone.config.hidden_size)
            if tensor is not None:
                tensors[index] = tensor
    if not any(found.values()):
        return []
    spec = NormSpec(weight=bool(found["weight"]), bias=bool(found["bias"]))
    return [
        ImportedPart(spec, {name: _norms(name, tensors, spec, backbone) for name, tensors in found.items() if tensors})
    ]


def _norms(name: str, found: Mapping[int, Tensor], spec: NormSpec, backbone: Backbone) -> Tensor:
    kept = spec.biased(backbone.config) if name == "bias" else spec.norms(backbone.config)
    own = backbone_norms(name, backbone, kept)
    refused = sorted(set(found) - set(kept))
    if refused:
        raise AdapterError(f"norm {refused[0]} has a bias, which the final norms of a T5 cannot have")
    whole = torch.zeros(len(kept), backbone.config.hidden_size) if own is None else own.cpu().clone()
    for index, tensor in found.items():
        whole[kept.index(index)] = tensor
    return whole


def take_biases(checkpoint: Checkpoint, places: ModuleSites, backbone: Backbone) -> list[ImportedPart]:
    """The part of the biases of projections in `checkpoint`, if there are any."""
    found: dict[ModuleSite, Tensor] = {}
    for module, place in places.projections.items():
        tensor = checkpoint.take_if(f"{module}.bias")
        if tensor is not None:
            found[place] = tensor
    if not found:
        return []
    sites = tuple(dict.fromkeys(cast(BiasSite, site) for site, _ in found))
    if "pooler" in sites and (not isinstance(backbone.model, Bert) or backbone.model.pooler is None):
        raise AdapterError(f"{checkpoint.where} has a bias of the pooler, which this backbone does not have")
    spec = BiasSpec(sites=sites)
    return [ImportedPart(spec, {site: _biases(site, found, spec, backbone) for site in sites})]


def _biases(site: BiasSite, found: Mapping[ModuleSite, Tensor], spec: BiasSpec, backbone: Backbone) -> Tensor:
    whole = backbone_bias(spec, site, backbone).cpu().clone()
    for (own, index), tensor in found.items():
        if own != site:
            continue
        target = whole[index] if whole.dim() == 2 else whole
        if target.shape != tensor.shape:
            raise AdapterError(
                f"the bias of {site!r} has shape {list(tensor.shape)}; on this backbone it must be {list(target.shape)}"
            )
        target.copy_(tensor)
    return whole
