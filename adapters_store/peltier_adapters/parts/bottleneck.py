"""Bottleneck adapters: y + up(act(down(x))) at the output of a sub-layer (methods.md 1.2, 1.3, 1.5-1.9, 1.15)."""

from typing import TYPE_CHECKING

import torch
from peltier_backbone.adaptation import Norm
from peltier_backbone.load import Backbone
from peltier_backbone.native.chain import Chain
from torch import Tensor

from peltier_adapters.parts import gate, maps
from peltier_adapters.parts.part import Context, Part, normal
from peltier_adapters.spec import BottleneckSpec
from peltier_adapters.tensors import Tensors

if TYPE_CHECKING:
    from peltier_adapters.kernels.fused import Fused

_SHARED_RULE_STD = 1e-4
# methods.md section 3: T5 adapters start closer to the identity than BERT's.
_DENSE_STD = {"t5": 0.01, "bert": 0.02, "roberta": 0.02}


def init(spec: BottleneckSpec, backbone: Backbone, generator: torch.Generator) -> dict[str, Tensor]:
    """Fresh tensors: an LPHM adapter starts as the identity to 1e-5, the others near it (methods.md section 3)."""
    shapes, std = spec.shapes(backbone.config), _DENSE_STD[backbone.config.family]
    tensors = {name: torch.zeros(shape) for name, shape in shapes.items() if name.endswith("bias")}
    for side in ("down", "up"):
        own = {name.removeprefix(f"{side}."): shape for name, shape in shapes.items() if name.startswith(side)}
        tensors |= {f"{side}.{name}": tensor for name, tensor in maps.init(spec.map, own, std, generator).items()}
    if "rule" in shapes:
        tensors["rule"] = normal(shapes["rule"], _SHARED_RULE_STD, generator)
    return tensors | gate.init(shapes, generator)


class Bottleneck(Part):
    """A bottleneck on one slice; its tensors are [G, S, B, …], B the blocks that have one."""

    def __init__(self, spec: BottleneckSpec, tensors: Tensors, context: Context) -> None:
        self._spec, self._context = spec, context
        self._sites: dict[str, int] = {site: index for index, site in enumerate(spec.sites)}
        self.sublayers = frozenset(self._sites)
        self._places = {block: place for place, block in enumerate(spec.blocks(context.backbone.config))}
        rule = tensors.get("rule")
        self._down, self._up = (self._map(tensors.under(f"{side}."), rule) for side in ("down", "up"))
        self._gate = gate.Gate("bottleneck", tensors, context) if spec.gated else None
        self._fused = self._fuse()
        self._chains = [self._chain(index) for index in range(len(spec.sites))]

    def _map(self, tensors: Tensors, rule: Tensor | None) -> maps.Map:
        return maps.prepare(self._spec.map, tensors, rule, self._context.segments, self._context.dtype)

    def _fuse(self) -> "Fused | None":
        """All of it as one kernel, on a GPU and where there is one for these maps."""
        launcher = self._context.segments.launcher
        if launcher is None:
            return None
        from peltier_adapters.kernels.fused import fuse  # needs Triton

        return fuse(self._down, self._up, self._spec.activation, launcher.runs)

    def _chain(self, index: int) -> Chain | None:
        """The same on a CPU, for the site of this number."""
        if self._context.segments.native is None:
            return None
        down, up = self._down.products(index, self._spec.activation), self._up.products(index)
        return self._context.segments.chain((*down, *up))

    def _input(self, y: Tensor, residual: Tensor, norm: Norm) -> Tensor:
        match self._spec.input:
            case "output":
                return y
            case "sum":
                return y + residual
            case "normed":
                return norm(y + residual)

    def sublayer(self, layer: int, site: str, y: Tensor, residual: Tensor, norm: Norm) -> Tensor:
        index, place = self._sites[site], self._places.get(layer)
        if place is None:
            return y
        x = self._input(y, residual, norm)
        if self._fused is not None:
            self._fused(y, x, index, place, self._scale(x, index, place, site, layer))
            return y
        chain = self._chains[index]
        if chain is not None:
            chain.add(y, x, place, self._scale(x, index, place, site, layer))
            return y
        inner = self._down(x, index, place, self._spec.activation)
        if x is y and inner.requires_grad:
            y = y.clone()  # the down map keeps its input for the backward pass
        self._up.add(y, inner, index, place, self._scale(x, index, place, site, layer))
        return y

    def _scale(self, x: Tensor, index: int, place: int, site: str, layer: int) -> Tensor | None:
        """What the gate lets pass, [tokens, 1]."""
        if self._gate is None:
            return None
        return self._context.segments.spread(self._gate(x, index, place, label=site, layer=layer))
