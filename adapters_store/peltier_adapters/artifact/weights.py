"""An adapter's tensors, contiguous in one piece of memory, which is whole pages of the operating system."""

import ctypes
import mmap
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from math import prod
from operator import mul
from queue import Empty, SimpleQueue
from typing import Self

import torch
from peltier_backbone.checkpoint.config import BackboneConfig
from torch import Tensor

from peltier_adapters.spec.maps import Shapes, TensorShape
from peltier_adapters.spec.parts import Parts, tensor_shapes

# Mapping all pages at once takes half as long as a page fault for each.
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_POPULATE", 0)
_MAX_KEPT_BYTES = 8 * 1024 * 1024

Memory = ctypes.Array[ctypes.c_char]


class Pages:
    """Allocates memory, and frees it when nothing refers to it any more. Thread-safe.

    Freed memory goes back to the operating system. The C library's allocator would keep it: after a thousand adapters
    of 0.1 to 1.4 MB it returned a tenth. At most `max_kept_bytes` of recently freed memory are kept for the next
    adapter of the same size, because mapping and clearing new pages would take a third of a load.
    """

    def __init__(self, max_kept_bytes: int = _MAX_KEPT_BYTES) -> None:
        self._max_kept_bytes = max_kept_bytes
        self._kept: deque[mmap.mmap] = deque()
        self.kept_bytes = 0
        # Of `_kept` and its bytes. A finalizer may run at any place of a thread, also of one that holds the lock, so it
        # only puts its pages here. Who holds the lock keeps them.
        self._lock = threading.Lock()
        self._freed = SimpleQueue[mmap.mmap]()

    def take(self, num_bytes: int) -> Memory:
        """Uninitialised memory of this size, rounded up to whole pages."""
        size = num_pages_bytes(num_bytes)
        pages = self._reuse(size) or _map(size)
        memory = (ctypes.c_char * size).from_buffer(pages)
        weakref.finalize(memory, self._give_back, pages).atexit = False
        return memory

    def _reuse(self, size: int) -> mmap.mmap | None:
        with self._lock:
            found = next((pages for pages in reversed(self._kept) if len(pages) == size), None)
            if found is not None:
                self._kept.remove(found)
                self.kept_bytes -= size
        self._keep_freed()
        return found

    def _give_back(self, pages: mmap.mmap) -> None:
        self._freed.put(pages)
        self._keep_freed()

    def _keep_freed(self) -> None:
        """Keep freed pages, unless the lock is taken: its holder calls this after it has released it."""
        while not self._freed.empty() and self._lock.acquire(blocking=False):
            try:
                self._keep(self._freed.get_nowait())
            except Empty:
                pass
            finally:
                self._lock.release()

    def _keep(self, pages: mmap.mmap) -> None:
        self._kept.append(pages)
        self.kept_bytes += len(pages)
        while self.kept_bytes > self._max_kept_bytes:
            self.kept_bytes -= len(self._kept.popleft())


def _map(size: int) -> mmap.mmap:
    try:
        return mmap.mmap(-1, size, flags=_FLAGS)
    except OSError as error:  # the system's word for a lack of memory
        raise MemoryError(f"no memory for an adapter of {size} bytes") from error


def num_pages_bytes(num_bytes: int) -> int:
    """`num_bytes` in whole pages, at least one."""
    return max(1, -(-num_bytes // mmap.PAGESIZE)) * mmap.PAGESIZE


# Tensors are aligned to 64 bytes, for vector instructions.
_ALIGNMENT_ELEMENTS = 16
_PAGES = Pages()


@dataclass(frozen=True)
class _Position:
    """The position of a tensor. `strides` are those of a dense tensor of `shape`."""

    start: int
    end: int
    shape: TensorShape
    strides: TensorShape


class Layout:
    """The position of each tensor in a flat float32 tensor of `length` elements, in the given order."""

    def __init__(self, shapes: Shapes) -> None:
        self._positions: dict[str, _Position] = {}
        self.length = 0
        for name, shape in shapes.items():
            end = self.length + -(-prod(shape) // _ALIGNMENT_ELEMENTS) * _ALIGNMENT_ELEMENTS
            self._positions[name] = _Position(self.length, end, shape, _strides(shape))
            self.length = end

    def __len__(self) -> int:
        return len(self._positions)

    def __iter__(self) -> Iterator[str]:
        return iter(self._positions)

    @property
    def nbytes(self) -> int:
        """Bytes of memory of `AdapterWeights` with this layout."""
        return num_pages_bytes(4 * self.length)

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """The tensors inside `flat` [length]."""
        return {name: self.view(name, flat) for name in self}

    def view(self, name: str, flat: Tensor) -> Tensor:
        """The tensor `name` inside `flat`."""
        position = self._positions[name]
        return flat.as_strided(position.shape, position.strides, flat.storage_offset() + position.start)

    def span(self, name: str) -> slice:
        """The bytes of the tensor `name` in the memory of a flat tensor."""
        position = self._positions[name]
        return slice(4 * position.start, 4 * (position.start + prod(position.shape)))

    def block(self, name: str) -> slice:
        """The elements of the tensor `name` and of the gap after it."""
        return slice(self._positions[name].start, self._positions[name].end)

    @cached_property
    def gaps(self) -> Sequence[slice]:
        """The bytes between the tensors, and after the last one."""
        ends = ((self.span(name).stop, 4 * position.end) for name, position in self._positions.items())
        return [slice(start, end) for start, end in ends if start < end]


def _strides(shape: TensorShape) -> TensorShape:
    return tuple(accumulate(reversed(shape[1:]), mul, initial=1))[::-1] if shape else ()


def arrange(shapes: Shapes) -> Layout:
    """The layout of an adapter's tensors, given in any order: by name, those of the head last. So the layout of the
    other parts is a prefix of it."""
    return Layout(dict(sorted(shapes.items(), key=lambda item: (item[0].startswith("head."), item[0]))))


@lru_cache(maxsize=1024)
def layout_of(parts: Parts, config: BackboneConfig) -> Layout:
    """The layout of all tensors of `parts`."""
    return arrange(tensor_shapes(parts, config))


class AdapterWeights(Mapping[str, Tensor]):
    """The tensors of one adapter by name, as views of `flat`. They are never changed.

    Their memory is whole pages, which are freed with the last reference (see `Pages`).
    """

    def __init__(self, layout: Layout) -> None:
        """The caller writes every tensor: until then it has the values of an adapter that had this memory before."""
        self._layout = layout
        self._memory = _PAGES.take(4 * layout.length)
        self.flat = torch.frombuffer(self._memory, dtype=torch.float32)[: layout.length]
        for piece in self.pieces(layout.gaps):
            piece[:] = bytes(len(piece))

    @classmethod
    def copy(cls, layout: Layout, tensors: Mapping[str, Tensor]) -> Self:
        """A copy of tensors on any device."""
        weights = cls(layout)
        for name in layout:
            weights[name].copy_(tensors[name].detach())
        return weights

    def pieces(self, spans: Sequence[slice]) -> list[memoryview]:
        """The memory of these bytes, for the caller to write."""
        memory = memoryview(self._memory).cast("B")
        return [memory[span] for span in spans]

    @property
    def nbytes(self) -> int:
        """Bytes of memory of the tensors."""
        return self._layout.nbytes

    def __getitem__(self, name: str) -> Tensor:
        return self._layout.view(name, self.flat)

    def __iter__(self) -> Iterator[str]:
        return iter(self._layout)

    def __len__(self) -> int:
        return len(self._layout)
