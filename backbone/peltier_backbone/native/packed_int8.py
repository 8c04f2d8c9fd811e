"""A frozen weight of 8 bits in the memory layout of the kernels' products (`int8.c`)."""

import ctypes
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F

_TOGETHER = 4  # neighbouring elements of the inner dimension


class _Layout(ctypes.Structure):
    """An `int8_weight` of `int8.c`."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("values", "sums", "scales", "bias")) + tuple(
        (name, ctypes.c_int64) for name in ("inner", "outer")
    )


@dataclass(frozen=True)
class PackedInt8:
    """A weight [outer, inner] of `values` times one scale for each output, and a bias: `values` is [panels, groups of
    four, columns, 4]; `scales`, `sums` of each output's values, and the bias are [panels * columns]."""

    values: Tensor
    scales: Tensor
    sums: Tensor
    bias: Tensor | None
    outer: int
    inner: int

    @classmethod
    def pack(cls, values: Tensor, scales: Tensor, bias: Tensor | None, columns: int) -> Self:
        """`values` [outer, inner] in int8, `scales` and `bias` [outer]. Zeros fill the rest."""
        outer, inner = values.shape
        missing = -outer % columns
        padded = F.pad(values, (0, -inner % _TOGETHER, 0, missing))
        panels = padded.view(-(-outer // columns), columns, -1, _TOGETHER).transpose(1, 2).contiguous()
        sums, added = padded.sum(1, dtype=torch.int32), None if bias is None else F.pad(bias, (0, missing))
        return cls(panels, F.pad(scales, (0, missing)), sums, added, outer, inner)

    @property
    def address(self) -> int:
        """Where the kernels read the weight."""
        return ctypes.addressof(self._layout)

    @cached_property
    def _layout(self) -> _Layout:
        tensors = (self.values, self.sums, self.scales, self.bias)
        return _Layout(*(None if one is None else one.data_ptr() for one in tensors), self.inner, self.outer)
