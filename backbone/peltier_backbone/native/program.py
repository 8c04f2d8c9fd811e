"""The programs of adapters as the kernels read them (`program.h`)."""

from collections.abc import Mapping, Sequence
from ctypes import Structure, addressof, c_int64
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from peltier_backbone.native.interface import INTERFACE, c_struct

ACTIVATIONS: Mapping[str, int] = INTERFACE.codes["activation"]
# What an op reads: `x`, the `sum` with the residual, or the `norm` of that.
READS = INTERFACE.codes["reads"]


@c_struct("vector")
class Vector(Structure):
    """Weights that all adapters share, or their place among an adapter's weights."""


@c_struct("step")
class Step(Structure):
    """One product, and an activation."""


@c_struct("gate")
class NativeGate(Structure):
    """One number for each row."""


@c_struct("op")
class Op(Structure):
    """Steps, or a bias, or a prefix."""


@c_struct("norm_weights")
class NativeNormWeights(Structure):
    """An adapter's own weights of a norm."""


_Program = INTERFACE.structs["program"]

NOTHING = Vector(None, -1)
NO_GATE = NativeGate(NOTHING, NOTHING, 0, 0)
_VECTORS = ("added", "replaced", "factor", "norm_weight", "norm_bias", "keys", "values")


def vector(tensor: Tensor | None) -> Vector:
    """The address at which the kernels find a tensor. A tensor on the meta device stands for the part of each adapter's
    weights that begins at its storage offset. All adapters share any other tensor; it must outlive the program."""
    if tensor is None:
        return NOTHING
    assert tensor.dtype == torch.float32, "kernels read weights in float32"
    if tensor.is_meta:
        return Vector(None, tensor.storage_offset())
    return Vector(tensor.data_ptr(), -1)


def step(weight: Tensor, bias: Tensor | None, *, fold: int = 1, activation: str = "none") -> Step:
    """act(x W + b) with `weight` [in, out] and `bias` [out]; a row of x counts as `fold` rows [in]."""
    stride, column = weight.stride()
    assert column == 1 or weight.shape[1] == 1, "a row of a weight is contiguous"
    return Step(vector(weight), vector(bias), stride, fold, *weight.shape, ACTIVATIONS[activation])


@dataclass(frozen=True)
class PlacedOp:
    """An op, the steps that it points to, and the number of the place where it acts."""

    place: int
    op: Op
    steps: Any


def place_op(place: int, steps: Sequence[Step] = (), **fields: Any) -> PlacedOp:
    """An op of `steps`; `fields` are fields of `Op`, and a missing one has a neutral value."""
    own = (Step * len(steps))(*steps)
    given = dict.fromkeys(_VECTORS, NOTHING) | {"gain": 1.0} | fields
    return PlacedOp(place, Op(steps=addressof(own), count=len(steps), **given), own)


def place_prefix(place: int, keys: Tensor, values: Tensor, gate: NativeGate | None) -> PlacedOp:
    """The op of a prefix: keys and values [heads, prefix, head size], both multiplied by the gate."""
    assert keys.stride() == values.stride(), "key and value are found at the same distance"
    assert keys.shape[2] == 1 or keys.stride(2) == 1, "a key is contiguous"
    head_stride, key_stride, _ = keys.stride()
    return place_op(
        place, gate=gate or NO_GATE, keys=vector(keys), values=vector(values), prefix=keys.shape[1],
        head_stride=head_stride, key_stride=key_stride,
    )  # fmt: skip


class NativeProgram:
    """The ops of adapters of one kind at places 0 to `num_places` - 1, and their norm weights by norm number."""

    def __init__(
        self, ops: Sequence[PlacedOp], num_places: int, norms: Mapping[int, NativeNormWeights], num_norms: int,
        kept: object,
    ) -> None:  # fmt: skip
        """The program keeps `kept` alive: every tensor that `ops` and `norms` point to."""
        placed = sorted(ops, key=lambda one: one.place)
        counts = [0] * num_places
        for one in placed:
            counts[one.place] += 1
        none = NativeNormWeights(NOTHING, NOTHING)
        self.max_ops = max(counts, default=0)
        self._ops = (Op * len(placed))(*(one.op for one in placed))
        self._places = (c_int64 * (num_places + 1))(*accumulate(counts, initial=0))
        self._norms = (NativeNormWeights * num_norms)(*(norms.get(index, none) for index in range(num_norms)))
        self._program = _Program(addressof(self._ops), addressof(self._places), addressof(self._norms))
        self._kept = (kept, [one.steps for one in placed])
        self.address = addressof(self._program)
