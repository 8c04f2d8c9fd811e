"""Random adapters of every kind that a mixed batch may hold."""

from collections.abc import Sequence

import torch
from peltier_adapters.batch.adaptation import BatchAdaptation
from peltier_adapters.ops import backend
from peltier_adapters.ops.backend import AdapterGroup
from peltier_adapters.parts import init_tensors
from peltier_adapters.presets.presets import find_preset
from peltier_adapters.residency.bank import Bank
from peltier_adapters.residency.served import build_served
from peltier_adapters.residency.transfer import create_transfer
from peltier_adapters.spec.parts import Parts
from peltier_adapters.spec.served import served_parts
from peltier_backbone.config import BackboneConfig
from peltier_backbone.load import Backbone
from peltier_backbone.packing import Packed
from torch import Tensor

# In the order in which a batch is sorted: no prefix and no norm, norms, prefixes.
PRESETS = ("lora", "adamix", "compacter", "unipelt-apl")
_MOVED = 0.1


def compose(preset: str, config: BackboneConfig) -> Parts:
    """The parts of `preset`, with a head of two outputs where there is one."""
    # The T5 of a dry run is too narrow for the default bottleneck.
    own = {"bottleneck": "8"} if preset == "compacter" and config.hidden_size < 128 else {}
    recipe = find_preset(preset)
    return recipe.compose(recipe.settings(own, config), config, outputs=2)


def draw(exact: Backbone, parts: Parts, seed: int) -> dict[str, Tensor]:
    """Tensors of `parts`, each moved away from its start; `exact` is the backbone in float32 on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    tensors = init_tensors(parts, exact, generator)
    return {name: t + _MOVED * torch.randn(t.shape, generator=generator) for name, t in tensors.items()}


class Adapters:
    """`count` adapters of each of `PRESETS` without their heads, as a server keeps them on `device`."""

    def __init__(self, exact: Backbone, count: int, device: torch.device) -> None:
        """`exact` is the backbone in float32 on the CPU."""
        self.count, self._transfer = count, create_transfer(device)
        self._parts = [_body(compose(preset, exact.config)) for preset in PRESETS]
        self._flats = [[self._send(exact, parts, seed) for seed in range(count)] for parts in self._parts]

    def _send(self, exact: Backbone, parts: Parts, seed: int) -> Tensor:
        return self._transfer(build_served(parts, draw(exact, parts, seed), exact.config)).flat

    def on(self, backbone: Backbone) -> list[AdapterGroup]:
        """One row for each adapter, as a backbone of the same shape has them."""
        programs = [Bank(number, served_parts(parts), backbone).program for number, parts in enumerate(self._parts)]
        return [
            AdapterGroup(1, program, flat)
            for program, flats in zip(programs, self._flats, strict=True)
            for flat in flats
        ]


def _body(parts: Parts) -> Parts:
    return tuple(part for part in parts if part.kind != "head")


def adapt(backbone: Backbone, groups: Sequence[AdapterGroup], packed: Packed) -> BatchAdaptation:
    """A batch with one row per adapter, with the backend of the backbone's device."""
    chosen = backend.choose_backend(backbone.device, backbone.dtype)
    return BatchAdaptation(backbone, groups, packed.lengths, chosen)
