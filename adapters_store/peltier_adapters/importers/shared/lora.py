"""Makes one part of LoRA pairs with any ranks and scales: scales are multiplied into the up maps, ranks zero-padded."""

from collections.abc import Mapping
from dataclasses import dataclass

from peltier_backbone.config import BackboneConfig
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.gate import Gate, stacked_gates
from peltier_adapters.importers.shared.imported_part import ImportedPart, stacked
from peltier_adapters.importers.shared.module_sites import ModuleSite
from peltier_adapters.spec.parts import LoraSpec, LoraTarget

_TARGETS: dict[str, LoraTarget] = {"query": "query", "key": "key", "value": "value", "attention_output": "output"}


@dataclass(frozen=True)
class LoraPair:
    """y + scale * (x a^T) b^T on one projection; a [r, in], b [out, r]. A gate replaces the scale
    (docs/methods.md#lora)."""

    a: Tensor
    b: Tensor
    scale: float = 1.0
    gate: Gate | None = None

    @property
    def scaled_b(self) -> Tensor:
        """b multiplied by the scale, unless there is a gate."""
        return self.b if self.gate is not None else self.b * self.scale


def check_target(site: str) -> None:
    """Refuses a projection that LoRA does not support."""
    if site not in _TARGETS:
        raise AdapterError(
            f"LoRA adapts the projection {site!r}; only those of the attention are supported: {', '.join(_TARGETS)}"
        )


def create_lora(pairs: Mapping[ModuleSite, LoraPair], config: BackboneConfig) -> ImportedPart:
    """The part of `pairs` by site and attention."""
    gated = {place for place, pair in pairs.items() if pair.gate is not None}
    if gated and gated != set(pairs):
        raise AdapterError(f"{len(gated)} of {len(pairs)} LoRA projections are gated; all or none must be")
    targets = tuple(target for site, target in _TARGETS.items() if any(site == own for own, _ in pairs))
    rank = max(len(pair.a) for pair in pairs.values())
    skip = min(config.place_attention(index) for _, index in pairs)
    spec = LoraSpec(targets=targets, rank=rank, alpha=float(rank), gated=bool(gated), skip=skip)
    return ImportedPart(spec, _tensors(spec, pairs, config))


def _tensors(spec: LoraSpec, pairs: Mapping[ModuleSite, LoraPair], config: BackboneConfig) -> dict[str, Tensor]:
    attentions = spec.attentions(config)
    placed = {
        (spec.targets.index(_TARGETS[site]), attentions.index(index)): pair for (site, index), pair in pairs.items()
    }
    leading = (len(spec.targets), len(attentions))
    down, up = (config.hidden_size, spec.rank), (spec.rank, config.attention_size)
    gates = {place: pair.gate for place, pair in placed.items() if pair.gate is not None}
    return {
        "down": stacked({place: pair.a.T for place, pair in placed.items()}, leading, down),
        "up": stacked({place: pair.scaled_b.T for place, pair in placed.items()}, leading, up),
    } | stacked_gates(gates, leading, config.hidden_size)
