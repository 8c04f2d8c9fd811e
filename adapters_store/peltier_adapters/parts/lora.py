"""LoRA on the attention projections (methods.md 1.13), gated as in UniPELT (1.14)."""

from typing import TYPE_CHECKING

import torch
from peltier_backbone.load import Backbone
from torch import Tensor

from peltier_adapters.kernels.choice import MAX_SIZE
from peltier_adapters.parts import gate
from peltier_adapters.parts.part import Context, Part, Tensors
from peltier_adapters.spec import LoraSpec, LoraTarget

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
        self._spec, self._context = spec, context
        dtype = context.dtype
        self._gate = gate.find_gate("lora", tensors, context)
        scale = spec.alpha / spec.rank if self._gate is None else 1.0
        self._up = (tensors["up"] * scale).to(dtype)
        columns = _SELF | _CROSS if context.backbone.config.generates else _SELF
        self._columns = {site: members for site, members in columns.items() if set(members) & set(spec.targets)}
        self.projections = frozenset(self._columns)
        # The targets of one projection read the same input: one product for all of them.
        self._down = {
            site: torch.cat([tensors["down"][:, spec.targets.index(target)] for target in self._targets(site)], -1).to(
                dtype
            )
            for site in self._columns
        }  # [G, A, hidden, targets * r]

    def _targets(self, site: str) -> list[LoraTarget]:
        return [target for target in self._spec.targets if target in self._columns[site]]

    def project(self, layer: int, site: str, x: Tensor, y: Tensor) -> None:
        if site not in self._columns:
            return
        segments, width = self._context.segments, self._up.shape[-1]
        if segments.launcher is not None and self._spec.rank <= MAX_SIZE:
            self._launch(segments.launcher, layer, site, x, y)
            return
        inner = segments.linear(x, self._down[site][:, layer])
        for target, part in zip(self._targets(site), torch.split(inner, self._spec.rank, -1), strict=True):
            index = self._spec.targets.index(target)
            scale = None if self._gate is None else segments.spread(self._gate(x, index, layer, label=target))
            column = self._columns[site].index(target) * width
            segments.add_linear(y[:, column : column + width], part, self._up[:, index, layer], scale=scale)

    def _launch(self, launcher: "Launcher", layer: int, site: str, x: Tensor, y: Tensor) -> None:
        """The same on a GPU, one launch a target."""
        width, rank = self._up.shape[-1], self._spec.rank
        for place, target in enumerate(self._targets(site)):
            index, column = self._spec.targets.index(target), self._columns[site].index(target) * width
            gate = None if self._gate is None else self._gate(x, index, layer, label=target)
            scale = None if gate is None else self._context.segments.spread(gate)
            down = self._down[site][:, layer, :, place * rank : (place + 1) * rank]
            launcher.lora(y[:, column : column + width], x, down, self._up[:, index, layer], scale)
