"""A frozen weight in the memory layout of the kernels' products, in its dtype (`product.c`) or in 8 bits (`int8.c`)."""

from ctypes import Structure, addressof
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F

from peltier_backbone.native.interface import INTERFACE

_Int8Weight = INTERFACE.structs["int8_weight"]
_TOGETHER_INT8 = 4  # neighbouring elements of the inner dimension


@dataclass(frozen=True)
class PackedWeight:
    """A weight [outer, inner] in panels of some columns each: `data` is [panels, inner, columns, 1] in float32 and
    [panels, (inner + 1) // 2, columns, 2] in bfloat16."""

    data: Tensor
    outer: int
    inner: int

    @classmethod
    def pack(cls, weight: Tensor, columns: int) -> Self:
        """Zeros fill the last panel and an incomplete pair."""
        outer, inner = weight.shape
        together = 2 if weight.dtype == torch.bfloat16 else 1
        padded = F.pad(weight, (0, -inner % together, 0, -outer % columns))
        panels = padded.reshape(-(-outer // columns), columns, -1, together)
        return cls(panels.transpose(1, 2).contiguous(), outer, inner)

    def unpack(self) -> Tensor:
        """The weight [outer, inner]."""
        panels, _, columns, _ = self.data.shape
        return self.data.transpose(1, 2).reshape(panels * columns, -1)[: self.outer, : self.inner].contiguous()


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
    # It is made with the weight, because kernels keep its address: a second one, made by another thread, would replace
    # the one that they read.
    _layout: Structure = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        layout = _Int8Weight(
            values=self.values.data_ptr(), sums=self.sums.data_ptr(), scales=self.scales.data_ptr(),
            bias=None if self.bias is None else self.bias.data_ptr(), inner=self.inner, outer=self.outer,
        )  # fmt: skip
        object.__setattr__(self, "_layout", layout)

    @classmethod
    def pack(cls, values: Tensor, scales: Tensor, bias: Tensor | None, columns: int) -> Self:
        """`values` [outer, inner] in int8, `scales` and `bias` [outer]. Zeros fill the rest."""
        outer, inner = values.shape
        missing = -outer % columns
        padded = F.pad(values, (0, -inner % _TOGETHER_INT8, 0, missing))
        panels = padded.view(-(-outer // columns), columns, -1, _TOGETHER_INT8).transpose(1, 2).contiguous()
        sums, added = padded.sum(1, dtype=torch.int32), None if bias is None else F.pad(bias, (0, missing))
        return cls(panels, F.pad(scales, (0, missing)), sums, added, outer, inner)

    @property
    def address(self) -> int:
        """Where the kernels read the weight."""
        return addressof(self._layout)
