"""Frozen tables of embeddings, which are read by row."""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from peltier_backbone.linear.linear import Linear
from peltier_backbone.linear.quantized_linear import QuantizedLinear, quantize_weight


class Table(Protocol):
    """A frozen table [entries, width]."""

    def __call__(self, ids: Tensor) -> Tensor:
        """The rows of `ids`, [*ids, width] in the compute dtype; a copy."""

    def part(self, start: int, stop: int) -> Tensor:
        """The rows from `start` to `stop`, [stop - start, width] in the compute dtype; callers do not write to them."""

    def weight(self) -> Tensor:
        """The whole table, for hashing."""


class TableKernel(Protocol):
    """A way to keep frozen tables."""

    def __call__(self, weight: Tensor, shared: Linear | None = None) -> Table:
        """The table of `weight`; `shared` is a frozen map of the same weight, whose memory the table may read."""


class PlainTable:
    """A table as it is; a `shared` map has its own layout."""

    def __init__(self, weight: Tensor, shared: Linear | None = None) -> None:
        self._weight = weight

    def __call__(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self._weight)

    def part(self, start: int, stop: int) -> Tensor:
        return self._weight[start:stop]

    def weight(self) -> Tensor:
        return self._weight


class QuantizedTable:
    """A table in int8 with one scale for each entry; rows are float32. With a `shared` map in int8 it has no memory of
    its own."""

    def __init__(self, weight: Tensor, shared: Linear | None = None) -> None:
        self._weight = shared if isinstance(shared, QuantizedLinear) else quantize_weight(weight)

    def __call__(self, ids: Tensor) -> Tensor:
        return self._weight.rows(ids)

    def part(self, start: int, stop: int) -> Tensor:
        return self(torch.arange(start, stop))

    def weight(self) -> Tensor:
        return self._weight.dequantize()
