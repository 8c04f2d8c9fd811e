"""The integer inputs of a batch on a GPU, in one tensor."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Self

import torch
from torch import Tensor

Values = Sequence[int] | Tensor


class Indices:
    """Named int64 vectors of fixed sizes on a device. One copy from a host buffer fills all of them."""

    def __init__(self, sizes: Mapping[str, int], device: torch.device) -> None:
        ends = list(accumulate(sizes.values()))
        self._places = {name: slice(end - size, end) for (name, size), end in zip(sizes.items(), ends, strict=True)}
        self._host = torch.empty(ends[-1], dtype=torch.int64, pin_memory=device.type == "cuda")
        self._numbers = self._host.numpy()
        self._device = torch.empty(ends[-1], dtype=torch.int64, device=device)

    @classmethod
    def of(cls, values: Mapping[str, Values], device: torch.device) -> Self:
        """Vectors as long as their `values`, filled with them."""
        indices = cls({name: len(own) for name, own in values.items()}, device)
        indices.fill(values)
        return indices

    def __getitem__(self, name: str) -> Tensor:
        return self._device[self._places[name]]

    def fill(self, values: Mapping[str, Values]) -> None:
        """Write all vectors. The last number of each is repeated up to the vector's size. Call it only after the batch
        of the previous call has been computed, because the previous copy must have ended."""
        assert values.keys() == self._places.keys(), "a vector that is not written would be another batch's"
        for name, own in values.items():
            place = self._places[name]
            end = place.start + len(own)
            assert end <= place.stop, f"{name} has room for {place.stop - place.start} numbers, not for {len(own)}"
            self._numbers[place.start : end] = own
            if end < place.stop:
                self._numbers[end : place.stop] = own[-1]
        self._device.copy_(self._host, non_blocking=True)
