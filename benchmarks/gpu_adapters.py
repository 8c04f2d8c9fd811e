"""Random adapters of every kind that a mixed batch may hold."""

import copy

import torch
from peltier_adapters.mixture import Mixture, create_slice
from peltier_adapters.parts import init_tensors
from peltier_adapters.presets import find_preset
from peltier_adapters.spec import Parts
from peltier_adapters.tensors import Tensors
from peltier_backbone.config import BackboneConfig
from peltier_backbone.load import Backbone
from peltier_backbone.packing import Packed
from torch import Tensor

# In the order in which a batch is sorted: no prefix and no norm, norms, prefixes.
PRESETS = ("lora", "adamix", "compacter", "unipelt-apl")
_MOVED = 0.1


def compose(preset: str, config: BackboneConfig) -> Parts:
    """The parts of `preset`, with a head of two outputs where there is one."""
    # A dry run's T5 is too narrow for its default.
    own = {"bottleneck": "8"} if preset == "compacter" and config.hidden_size < 128 else {}
    recipe = find_preset(preset)
    return recipe.compose(recipe.settings(own, config), config, outputs=2)


def draw(exact: Backbone, parts: Parts, seed: int) -> dict[str, Tensor]:
    """Tensors of `parts`, each moved away from its start; `exact` is the backbone in float32 on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    tensors = init_tensors(parts, exact, generator)
    return {name: t + _MOVED * torch.randn(t.shape, generator=generator) for name, t in tensors.items()}


class Adapters:
    """`count` adapters of each of `PRESETS` without their heads, stacked as in a bank."""

    def __init__(self, exact: Backbone, count: int) -> None:
        """`exact` is the backbone in float32 on the CPU."""
        self.count = count
        self._parts: dict[str, Parts] = {}
        self._banks: dict[str, dict[str, Tensor]] = {}
        for preset in PRESETS:
            self._parts[preset] = tuple(part for part in compose(preset, exact.config) if part.kind != "head")
            drawn = [draw(exact, self._parts[preset], seed) for seed in range(count)]
            self._banks[preset] = {name: torch.stack([one[name] for one in drawn]) for name in drawn[0]}

    def to(self, device: torch.device) -> "Adapters":
        """The same on a device."""
        moved = copy.copy(self)
        moved._banks = {
            preset: {name: tensor.to(device) for name, tensor in bank.items()} for preset, bank in self._banks.items()
        }
        return moved

    def mixture(self, backbone: Backbone, packed: Packed) -> Mixture:
        """A batch of as many rows as there are adapters, each with its own; weights are gathered as a server does."""
        index = torch.arange(self.count, device=backbone.device)
        slices = [
            create_slice(
                backbone, packed, number * self.count, range(self.count), self._parts[preset],
                Tensors({name: tensor.index_select(0, index) for name, tensor in self._banks[preset].items()}),
            )
            for number, preset in enumerate(PRESETS)
        ]  # fmt: skip
        return Mixture(backbone, slices)
