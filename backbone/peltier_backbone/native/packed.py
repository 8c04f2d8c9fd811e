"""A frozen weight in the memory layout of the kernels' products (`product.c`)."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F


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
