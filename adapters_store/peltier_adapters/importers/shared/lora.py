"""Makes one part of LoRA pairs with any ranks and scales: scales are multiplied into the up maps, ranks zero-padded."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from peltier_backbone.checkpoint.config import BackboneConfig
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import Checkpoint
from peltier_adapters.importers.shared.imported import ImportedGate, ImportedPart, stacked, stacked_gates, take_gate
from peltier_adapters.importers.shared.module_sites import ModuleSite, find_sites
from peltier_adapters.spec.parts import ALL_LINEAR, FEED_FORWARD, LoraSpec, LoraStack, LoraTarget

# The maps of each projection, in the order of its columns: the target, and the number of the map among its own.
_Map = tuple[LoraTarget, int]
_MAPS: dict[str, tuple[_Map, ...]] = {
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


@dataclass(frozen=True)
class LoraNames:
    """The names of a pair's tensors, and of its gate if the library has gates."""

    a: str
    b: str
    gate: str | None = None


def lora_modules(config: BackboneConfig) -> dict[str, ModuleSite]:
    """The modules that a LoRA part can adapt."""
    projections = find_sites(config).projections
    return {module: place for module, place in projections.items() if place[0] in _MAPS}


def take_pair(checkpoint: Checkpoint, names: LoraNames, alpha: float, site: str, config: BackboneConfig) -> LoraPair:
    """The pair of a projection, whose scale is alpha / r. Raises an `AdapterError` for shapes that are not the
    projection's."""
    stack = _find_stack(site, config)
    a = checkpoint.take(names.a, None, stack.before)
    b = checkpoint.take(names.b, len(_MAPS[site]) * stack.after, len(a))
    gate = None if names.gate is None else take_gate(checkpoint, names.gate, stack.before)
    return LoraPair(a, b, alpha / len(a), gate)


def _find_stack(site: str, config: BackboneConfig) -> LoraStack:
    target, _ = _MAPS[site][0]
    every = LoraSpec(targets=ALL_LINEAR, rank=1, alpha=1)
    return next(stack for stack in every.stacks(config) if target in stack.maps)


def create_lora(pairs: Mapping[ModuleSite, LoraPair], config: BackboneConfig) -> ImportedPart:
    """The part of `pairs` by projection and its attention or block."""
    gated = {place for place, pair in pairs.items() if pair.gate is not None}
    if gated and gated != set(pairs):
        raise AdapterError(f"{len(gated)} of {len(pairs)} LoRA projections are gated; all or none must be")
    found = {target for site, _ in pairs for target, _ in _MAPS[site]}
    rank = max(len(pair.a) for pair in pairs.values())
    targets = tuple(target for target in ALL_LINEAR if target in found)
    skip = min(_place(site, number, config) for site, number in pairs)
    spec = LoraSpec(targets=targets, rank=rank, alpha=float(rank), gated=bool(gated), skip=skip)
    tensors = (_tensors(spec, stack, pairs, config) for stack in spec.stacks(config))
    return ImportedPart(spec, {name: tensor for own in tensors for name, tensor in own.items()})


def _place(site: str, number: int, config: BackboneConfig) -> int:
    in_blocks = _MAPS[site][0][0] in FEED_FORWARD
    return config.place_block(number) if in_blocks else config.place_attention(number)


def _tensors(
    spec: LoraSpec, stack: LoraStack, pairs: Mapping[ModuleSite, LoraPair], config: BackboneConfig
) -> dict[str, Tensor]:
    placed = {}
    for (site, number), pair in pairs.items():
        for (target, which), b in zip(_MAPS[site], pair.b.chunk(len(_MAPS[site])), strict=True):
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
