"""Frozen linear maps by oneDNN's prepacked products, to compare with. The operators are private to torch."""

import torch
from peltier_backbone.linear.linear import FrozenLinear, Linear
from torch import Tensor


class OneDnnLinear(FrozenLinear):
    """A product of oneDNN with a weight in its own layout."""

    name = "onednn-prepacked"

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._bias = bias
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())

    def multiply(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "none")
        return y

    def transpose(self) -> Linear:
        return OneDnnLinear(self.weights()[0].t())

    def weights(self) -> tuple[Tensor, Tensor | None]:
        return self._weight.to_dense(), self._bias
