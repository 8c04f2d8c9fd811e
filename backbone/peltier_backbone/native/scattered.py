"""Weights that kernels read where they lie."""

from collections.abc import Sequence
from ctypes import addressof, c_int64
from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor

from peltier_backbone.native.library import side_by_side


class Offsets:
    """How many elements after the first group's tensors those of each group begin."""

    def __init__(self, elements: Sequence[int]) -> None:
        self._array = (c_int64 * len(elements))(*elements)
        self.address = addressof(self._array)

    @classmethod
    def between(cls, flats: Sequence[Tensor]) -> Self:
        """Of groups whose tensors lie in `flats`, each at the same place."""
        first, size = flats[0].data_ptr(), flats[0].element_size()
        return cls([(flat.data_ptr() - first) // size for flat in flats])


@dataclass(frozen=True)
class Scattered:
    """Tensors of one shape, one a group, wherever in memory they lie; `first` is the first group's. `kept` is that
    memory."""

    first: Tensor
    offsets: Offsets
    kept: object

    @classmethod
    def of(cls, stacked: Tensor) -> Self:
        """Those of a tensor [groups, …]."""
        stacked = side_by_side(stacked)
        return cls(stacked[0], Offsets([group * stacked.stride(0) for group in range(len(stacked))]), stacked)

    def __getitem__(self, index: Any) -> "Scattered":
        """The part of each group's tensor."""
        return Scattered(self.first[index], self.offsets, self.kept)
