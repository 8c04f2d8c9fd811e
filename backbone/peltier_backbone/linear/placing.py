"""Where the native kernels read the maps and norms of layers."""

from peltier_backbone.linear.linear import Linear
from peltier_backbone.linear.norm import Norm
from peltier_backbone.native.stack import FrozenMap, StackNorm


def place_map(linear: Linear) -> FrozenMap:
    """Where the kernels read a map that they compute."""
    placed = linear.place()
    assert placed is not None, "a stack has only maps of the native kernels"
    return placed


def place_norm(norm: Norm, index: int) -> StackNorm:
    """Where the kernels read norm `index`."""
    return StackNorm(norm.weight.data_ptr(), None if norm.bias is None else norm.bias.data_ptr(), index)
