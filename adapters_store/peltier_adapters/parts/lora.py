"""LoRA on the attention projections (methods.md 1.13), gated as in UniPELT (1.14)."""

from functools import cached_property
from typing import TYPE_CHECKING

import torch
from peltier_backbone.load import Backbone
from peltier_backbone.native.chain import Chain, Product
from torch import Tensor

from peltier_adapters.kernels.choice import MAX_SIZE
from peltier_adapters.parts import gate
from peltier_adapters.parts.part import Context, Part
from peltier_adapters.spec import LoraSpec, LoraTarget
from peltier_adapters.tensors import Tensors

if TYPE_CHECKING:
    from peltier_adapters.kernels.launcher import Launcher

# What a projection of the backbone computes side by side; T5's cross-attention reads two inputs.
_SELF: dict[str, tuple[str, ...]] = {"query_key_value": ("query", "key", "value"), "attention_output": ("output",)}
_CROSS: dict[str, tuple[str, ...]] = {"query": ("query",), "key_value": ("key", "value")}


def init(spec: LoraSpec, backbone: Backbone, generator: torch.Generator) -> dict[str, Tensor]:
    """down U(+-1/sqrt(in)), up 0: the first forward is the backbone's own."""
    shapes = spec.shapes(backbone.config)
    bound = backbone.config.hidden_size**-0.5
    down = torch.empty(shapes["down"]).uniform_(-bound, bound, generator=generator)
    return {"down": down, "up": torch.zeros(shapes["up"])} | gate.init(shapes, generator)


class Lora(Part):
    """LoRA on one slice; down [G, K, A, hidden, r], up [G, K, A, r, width]."""

    def __init__(self, spec: LoraSpec, tensors: Tensors, context: Context) -> None:
        self._spec, self._context, self._tensors = spec, context, tensors
        self._gate = gate.find_gate("lora", tensors, context)
        self._gain = spec.alpha / spec.rank if self._gate is None else 1.0
        columns = _SELF | _CROSS if context.backbone.config.generates else _SELF
        self._columns = {site: members for site, members in columns.items() if set(members) & set(spec.targets)}
        self.projections = frozenset(self._columns)
        self._width = spec.shapes(context.backbone.config)["up"][-1]
        self._chains = {target: self._chain(target) for target in spec.targets}

    def _chain(self, target: LoraTarget) -> Chain | None:
        """Both products of a target in one call, on a CPU."""
        if self._context.segments.native is None:
            return None
        index = self._spec.targets.index(target)
        down, up = (self._tensors.apart(name)[index] for name in ("down", "up"))
        return self._context.segments.chain((Product(down), Product(up, gain=self._gain)))

    @cached_property
    def _down(self) -> Tensor:
        return self._tensors["down"].to(self._context.dtype)

    @cached_property
    def _up(self) -> Tensor:
        return (self._tensors["up"] * self._gain).to(self._context.dtype)

    @cached_property
    def _joined(self) -> dict[str, Tensor]:
        """The targets of one projection read the same input: one matrix for all, [G, A, hidden, targets * r]."""
        return {
            site: torch.cat([self._down[:, self._spec.targets.index(target)] for target in self._targets(site)], -1)
            for site in self._columns
        }

    def _targets(self, site: str) -> list[LoraTarget]:
        return [target for target in self._spec.targets if target in self._columns[site]]

    def project(self, layer: int, site: str, x: Tensor, y: Tensor) -> None:
        if site not in self._columns:
            return
        segments, width = self._context.segments, self._width
        if segments.launcher is not None and self._spec.rank <= MAX_SIZE:
            self._launch(segments.launcher, layer, site, x, y)
            return
        inner = None if segments.native else segments.linear(x, self._joined[site][:, layer])
        for place, target in enumerate(self._targets(site)):
            index, chain = self._spec.targets.index(target), self._chains[target]
            scale = None if self._gate is None else segments.spread(self._gate(x, index, layer, label=target))
            column = self._columns[site].index(target) * width
            own = y[:, column : column + width]
            if chain is not None:
                chain.add(own, x, layer, scale)
            elif inner is not None:
                part = inner[:, place * self._spec.rank : (place + 1) * self._spec.rank]
                segments.add_linear(own, part, self._up[:, index, layer], scale=scale)

    def _launch(self, launcher: "Launcher", layer: int, site: str, x: Tensor, y: Tensor) -> None:
        """The same on a GPU, one launch a target."""
        width, rank = self._width, self._spec.rank
        for place, target in enumerate(self._targets(site)):
            index, column = self._spec.targets.index(target), self._columns[site].index(target) * width
            gate = None if self._gate is None else self._gate(x, index, layer, label=target)
            scale = None if gate is None else self._context.segments.spread(gate)
            down = self._joined[site][:, layer, :, place * rank : (place + 1) * rank]
            launcher.lora(y[:, column : column + width], x, down, self._up[:, index, layer], scale)
