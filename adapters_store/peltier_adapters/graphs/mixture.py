"""The adaptation of one batch whose slices are windows."""

import torch
from peltier_backbone.adaptation import Norm
from peltier_backbone.load import Backbone
from torch import Tensor

from peltier_adapters.graphs.window import Window
from peltier_adapters.mixture import Mixture, Slice, apply_parts
from peltier_adapters.parts import Context
from peltier_adapters.parts.gate import read_central
from peltier_adapters.spec import Parts
from peltier_adapters.tensors import Tensors


def create_slice(backbone: Backbone, window: Window, parts: Parts, tensors: Tensors) -> Slice:
    """All tokens, of which `parts` change those of the window."""
    context = Context(backbone, window, None, read_central(tensors, window.weights_dtype))
    return Slice(0, len(window.groups), slice(None), context, apply_parts(parts, tensors, context))


class WindowMixture(Mixture):
    """Every slice has all tokens and changes its own alone."""

    def norm(self, index: int, x: Tensor, base: Norm, residual: Tensor | None = None) -> Tensor:
        x = x if residual is None else x + residual
        y = self._apply_norm(None, index, x)
        for one in self._slices:
            if one.norm is not None:
                window = one.context.segments
                assert isinstance(window, Window)
                y = torch.where(window.inside, self._apply_norm(one.norm, index, x), y)
        return y
