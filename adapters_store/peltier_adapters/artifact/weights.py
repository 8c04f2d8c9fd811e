"""An adapter's tensors side by side in one piece of memory."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import prod
from operator import mul
from typing import Self

import torch
from peltier_backbone.config import BackboneConfig
from torch import Tensor

from peltier_adapters.artifact.pages import Pages, num_pages_bytes
from peltier_adapters.spec.maps import Shape, Shapes
from peltier_adapters.spec.parts import Parts, tensor_shapes

# A tensor begins at a multiple of 64 bytes, as vector units like it.
_ALIGNMENT = 16
_PAGES = Pages()


@dataclass(frozen=True)
class _Place:
    """Where a tensor lies; `strides` are those of a dense tensor of `shape`."""

    start: int
    end: int
    shape: Shape
    strides: Shape


class Layout:
    """Where each tensor of some shapes lies in a flat float32 tensor of `length` elements, in the order given."""

    def __init__(self, shapes: Shapes) -> None:
        self._places: dict[str, _Place] = {}
        self.length = 0
        for name, shape in shapes.items():
            end = self.length + -(-prod(shape) // _ALIGNMENT) * _ALIGNMENT
            self._places[name] = _Place(self.length, end, shape, _strides(shape))
            self.length = end

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    @property
    def nbytes(self) -> int:
        """Bytes that `Weights` of this layout take."""
        return num_pages_bytes(4 * self.length)

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """The tensors inside `flat` [length]."""
        return {name: self.view(name, flat) for name in self}

    def view(self, name: str, flat: Tensor) -> Tensor:
        """One of them."""
        place = self._places[name]
        return flat.as_strided(place.shape, place.strides, flat.storage_offset() + place.start)

    def write(self, pieces: Mapping[str, bytes | memoryview], memory: memoryview) -> None:
        """Copy the tensors, each as the bytes of its elements, to their places in the memory of a flat tensor."""
        for name, place in self._places.items():
            start, after = 4 * place.start, 4 * (place.start + prod(place.shape))
            memory[start:after] = pieces[name]
            memory[after : 4 * place.end] = bytes(4 * place.end - after)


def _strides(shape: Shape) -> Shape:
    return tuple(accumulate(reversed(shape[1:]), mul, initial=1))[::-1] if shape else ()


@lru_cache(maxsize=1024)
def layout_of(parts: Parts, config: BackboneConfig) -> Layout:
    """The layout of all tensors of `parts`; that of the leading parts alone is its beginning."""
    return Layout(tensor_shapes(parts, config))


class Weights(Mapping[str, Tensor]):
    """The tensors of one adapter by their names, as views of `flat`; nobody writes to them once they are made.

    On the CPU the memory is whole pages, which are given back with the last reference (see `Pages`).
    """

    def __init__(self, layout: Layout, pieces: Mapping[str, bytes | memoryview] | None = None) -> None:
        """A copy of `pieces`, which hold the elements of each tensor in float32, one after the other; without them
        zeros, for their maker to fill."""
        self._layout = layout
        memory = _PAGES.take(4 * layout.length)
        if pieces is not None:
            layout.write(pieces, memoryview(memory).cast("B"))
        self.flat = torch.frombuffer(memory, dtype=torch.float32)[: layout.length]
        if pieces is None:
            self.flat.zero_()

    @classmethod
    def copy(cls, layout: Layout, tensors: Mapping[str, Tensor]) -> Self:
        """The same from tensors on any device."""
        return cls(layout, {name: tensor.detach().float().cpu().numpy().tobytes() for name, tensor in tensors.items()})

    @property
    def nbytes(self) -> int:
        """Bytes of memory that they take."""
        return self._layout.nbytes

    def __getitem__(self, name: str) -> Tensor:
        return self._layout.view(name, self.flat)

    def __iter__(self) -> Iterator[str]:
        return iter(self._layout)

    def __len__(self) -> int:
        return len(self._layout)
