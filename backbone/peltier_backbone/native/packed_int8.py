"""A frozen weight of 8 bits in the memory layout of the kernels' products (`quantized.c`)."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F

_TOGETHER = 4  # neighbouring elements of the inner dimension


@dataclass(frozen=True)
class PackedInt8:
    """A weight [outer, inner] of `values` times one scale for each output: `values` is [panels, groups of four,
    columns, 4]; `scales`, and `sums` of each output's values, are [panels * columns]."""

    values: Tensor
    scales: Tensor
    sums: Tensor
    outer: int
    inner: int

    @classmethod
    def pack(cls, values: Tensor, scales: Tensor, columns: int) -> Self:
        """`values` [outer, inner] in int8 and `scales` [outer]; zeros fill the last panel and the last group."""
        outer, inner = values.shape
        padded = F.pad(values, (0, -inner % _TOGETHER, 0, -outer % columns))
        panels = padded.view(-(-outer // columns), columns, -1, _TOGETHER).transpose(1, 2).contiguous()
        sums = padded.sum(1, dtype=torch.int32)
        return cls(panels, F.pad(scales, (0, -outer % columns)), sums, outer, inner)

    def rows(self, ids: Tensor) -> Tensor:
        """The rows `ids` of the weight, [*ids, inner] in float32."""
        columns = self.values.shape[2]
        values = self.values[ids // columns, :, ids % columns]  # [*ids, groups of four, 4]
        return values.flatten(-2)[..., : self.inner] * self.scales[ids][..., None]
