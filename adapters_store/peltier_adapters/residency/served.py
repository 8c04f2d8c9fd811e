"""Builds the tensors that a server holds of an adapter (`served_spec`) when it is loaded."""

from collections.abc import Mapping

from peltier_backbone.config import BackboneConfig
from torch import Tensor

from peltier_adapters.artifact.weights import Weights, layout_of
from peltier_adapters.parts import bottleneck
from peltier_adapters.parts.part import under
from peltier_adapters.spec.parts import BottleneckSpec, Parts
from peltier_adapters.spec.served import served_parts


def device_bytes(parts: Parts, config: BackboneConfig) -> int:
    """Bytes that an adapter of these parts takes on a device."""
    return layout_of(served_parts(parts), config).nbytes


def build_served(parts: Parts, tensors: Mapping[str, Tensor], config: BackboneConfig) -> Weights:
    """The tensors of `served_parts(parts)` from those of `parts`."""
    weights = Weights(layout_of(served_parts(parts), config))
    views = dict(weights)
    for part in parts:
        own = under(f"{part.kind}.", tensors)
        built = bottleneck.build(part, own) if isinstance(part, BottleneckSpec) else own
        for name, tensor in built.items():
            views[f"{part.kind}.{name}"].copy_(tensor.detach())
    return weights
