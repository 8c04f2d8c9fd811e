"""Builds the tensors that a server holds of an adapter (`served_spec`) when it is loaded."""

from collections.abc import Mapping

from peltier_backbone.config import BackboneConfig
from torch import Tensor

from peltier_adapters.map_spec import LphmMap, PhmMap
from peltier_adapters.parts.maps import fold, kronecker
from peltier_adapters.served_spec import served_parts
from peltier_adapters.spec import BottleneckSpec, Parts, PartSpec
from peltier_adapters.weights import Weights, layout_of

_SIDES = ("down", "up")


def device_bytes(parts: Parts, config: BackboneConfig) -> int:
    """Bytes that an adapter of these parts takes on a device."""
    return layout_of(served_parts(parts), config).nbytes


def build_served(parts: Parts, tensors: Mapping[str, Tensor], config: BackboneConfig) -> Weights:
    """The tensors of `served_parts(parts)` from those of `parts`."""
    weights = Weights(layout_of(served_parts(parts), config))
    views = dict(weights)
    for part in parts:
        prefix = f"{part.kind}."
        for name, tensor in _built(part, _under(prefix, tensors)).items():
            views[prefix + name].copy_(tensor.detach())
    return weights


def _built(part: PartSpec, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What a part's tensors become, each without its part's name."""
    match part:
        case BottleneckSpec(map=PhmMap()):
            dense = {f"{side}.weight": _dense(_under(f"{side}.", tensors)) for side in _SIDES}
            return {name: one for name, one in tensors.items() if not name.endswith("rule")} | dense
        case BottleneckSpec(map=LphmMap()):
            return {name: one for name, one in tensors.items() if name.startswith("gate.")} | _folded(tensors)
    return dict(tensors)


def _dense(tensors: Mapping[str, Tensor]) -> Tensor:
    return kronecker(tensors["rule"], tensors["weight"])


def _folded(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    folded: dict[str, Tensor] = {}
    for side in _SIDES:
        one_group = {name: tensor[None] for name, tensor in _under(f"{side}.", tensors).items()}
        folded |= {f"{side}.{name}": tensor[0] for name, tensor in fold(one_group, tensors["rule"][None]).items()}
    return folded


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
