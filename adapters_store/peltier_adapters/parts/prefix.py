"""Prefix tuning: P extra keys and values in every attention (methods.md 1.12), gated as in UniPELT (1.14)."""

import torch
from peltier_backbone.attention import Prefix as KeysValues
from peltier_backbone.load import Backbone
from torch import Tensor

from peltier_adapters.parts import gate
from peltier_adapters.parts.part import Context, Part, normal
from peltier_adapters.spec import PrefixSpec
from peltier_adapters.tensors import Tensors


def init(spec: PrefixSpec, backbone: Backbone, generator: torch.Generator) -> dict[str, Tensor]:
    """Keys and values N(0, 0.02^2); training usually draws them through an MLP instead (methods.md 1.12)."""
    shapes = spec.shapes(backbone.config)
    drawn = {name: normal(shapes[name], 0.02, generator) for name in ("keys", "values")}
    return drawn | gate.init(shapes, generator)


class Prefix(Part):
    """Prefixes of one slice; keys and values [G, A, P, width]. No position is shifted, queries are untouched."""

    has_prefix = True

    def __init__(self, spec: PrefixSpec, tensors: Tensors, context: Context) -> None:
        self._context = context
        self._keys, self._values = (self._heads(tensors[name]) for name in ("keys", "values"))
        self._gate = gate.find_gate("prefix", tensors, context)

    def _heads(self, tensor: Tensor) -> Tensor:
        config = self._context.backbone.config
        split = tensor.view(*tensor.shape[:-1], config.num_heads, config.head_size)  # [G, A, P, heads, head size]
        return split.permute(1, 0, 3, 2, 4).to(self._context.backbone.dtype)

    def prefix(self, layer: int, x: Tensor) -> KeysValues:
        groups = self._context.segments.groups
        keys, values = self._keys[layer].index_select(0, groups), self._values[layer].index_select(0, groups)
        if self._gate is not None:
            scale = self._gate(x, layer)[:, :, None, None].to(keys.dtype)
            keys, values = keys * scale, values * scale
        return KeysValues(keys, values)
