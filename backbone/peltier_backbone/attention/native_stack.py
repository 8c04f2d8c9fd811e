"""Runs all layers of an encoder or a decoder in one native call."""

from typing import Protocol

from torch import Tensor

from peltier_backbone.attention.adaptation import Adaptation
from peltier_backbone.linear.linear import Linear
from peltier_backbone.linear.norm import Norm
from peltier_backbone.native.choice import serving_library
from peltier_backbone.native.program import Table
from peltier_backbone.native.stack import FrozenMap, NativeStack, StackNorm, StackRows


class PlacedView(Protocol):
    """The keys that the queries of each row see."""

    def place(self, prefixes: Table | None) -> StackRows:
        """The rows for the kernels. `prefixes`, if there are any, are those of whole rows or of single tokens."""


def run_stack(stack: NativeStack | None, x: Tensor, view: PlacedView, adaptation: Adaptation) -> Tensor | None:
    """The states after all layers of embedded tokens `x`, both [tokens, hidden]. None if Python must call the
    layers one by one: with other kernels than those of the maps, with gradients, or if not all of the adaptation is
    native."""
    library = serving_library(x.device, x.dtype)
    if stack is None or library is None or stack.packed_by is not library:
        return None
    ops = adaptation.place_ops()
    if ops is None:
        return None
    return library.run_stack(stack, x, view.place(ops.table if ops.prefixed else None), ops)


def place_map(linear: Linear) -> FrozenMap:
    """Where the kernels read a map that they compute."""
    placed = linear.place()
    assert placed is not None, "a stack has only maps of the native kernels"
    return placed


def place_norm(norm: Norm, index: int) -> StackNorm:
    """Where the kernels read norm `index`."""
    return StackNorm(norm.weight.data_ptr(), None if norm.bias is None else norm.bias.data_ptr(), index)
