"""Builds the tensors that a server keeps of an adapter (`served_parts`) when it loads the adapter."""

from collections.abc import Mapping

from peltier_backbone.config import BackboneConfig
from torch import Tensor

from peltier_adapters.artifact.weights import Weights, layout_of
from peltier_adapters.parts import bottleneck
from peltier_adapters.parts.part import under
from peltier_adapters.spec.parts import BottleneckSpec, Parts
from peltier_adapters.spec.served import served_parts


def device_bytes(parts: Parts, config: BackboneConfig) -> int:
    """The bytes of an adapter with these parts on a device."""
    return layout_of(served_parts(parts), config).nbytes


def build_served(parts: Parts, tensors: Mapping[str, Tensor], config: BackboneConfig) -> Weights:
    """The tensors of `served_parts(parts)`, built from the `tensors` of `parts`."""
    weights = Weights(layout_of(served_parts(parts), config))
    # Each look into `Weights` makes a view, and the parts look several times.
    views, tensors = dict(weights), dict(tensors)
    for part in parts:
        own = under(f"{part.kind}.", tensors)
        built = bottleneck.build(part, own) if isinstance(part, BottleneckSpec) else own
        for name, tensor in built.items():
            views[f"{part.kind}.{name}"].copy_(tensor.detach())
    return weights
