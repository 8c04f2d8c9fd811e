"""Contiguous tensors: exact values and offsets, little overhead, and memory that is freed."""

import ctypes
import errno
import mmap
import threading
from collections.abc import Callable
from math import prod
from unittest.mock import Mock
from weakref import WeakSet

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_adapters.artifact import weights as weights_module
from peltier_adapters.artifact.weights import AdapterWeights, Layout, Memory, Pages
from torch import Tensor

PAGE = 4096
_shapes = st.dictionaries(
    st.text("abc.", min_size=1, max_size=4), st.lists(st.integers(1, 9), max_size=4).map(tuple), max_size=6
)


def _address(memory: Memory) -> int:
    return ctypes.addressof(memory)


def test_what_is_given_back_is_used_again():
    pages = Pages(max_kept_bytes=10 * PAGE)
    memory = pages.take(3 * PAGE - 5)
    address, size = _address(memory), len(memory)
    del memory
    assert size == 3 * PAGE
    others = [pages.take(2 * PAGE), pages.take(4 * PAGE)]
    assert address not in map(_address, others)
    assert _address(pages.take(3 * PAGE)) == address


def test_memory_stays_while_a_view_of_it_does():
    pages = Pages()
    view = memoryview(pages.take(PAGE)).cast("B")[100:]
    view[0] = 7
    other = memoryview(pages.take(PAGE)).cast("B")
    other[100] = 8
    assert view[0] == 7


@given(sizes=st.lists(st.integers(0, 5 * PAGE), max_size=40), limit=st.integers(0, 12 * PAGE))
def test_no_more_is_kept_than_allowed(sizes: list[int], limit: int):
    """The memory that was freed first is returned first."""
    pages = Pages(max_kept_bytes=limit)
    held = [pages.take(size) for size in sizes]
    while held:
        held.pop()
        assert pages.kept_bytes <= limit


def test_threads_share_no_memory():
    """Each thread finds what it has written until it frees the memory."""
    pages, wrong = Pages(max_kept_bytes=4 * PAGE), []

    def work(number: int) -> Callable[[], None]:
        def write() -> None:
            for _ in range(300):
                view = memoryview(pages.take(PAGE)).cast("B")
                view[:] = bytes([number]) * PAGE
                wrong.extend([number] * (bytes(view) != bytes([number]) * PAGE))

        return write

    threads = [threading.Thread(target=work(number)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert wrong == []


def _random(layout_shapes: dict[str, tuple[int, ...]], seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) for name, shape in layout_shapes.items()}


@given(shapes=_shapes)
def test_what_is_found_is_what_was_put_in(shapes: dict[str, tuple[int, ...]]):
    """Every bit is the same, for any shapes."""
    layout, tensors = Layout(shapes), _random(shapes, 0)
    found = layout.views(AdapterWeights.copy(layout, tensors).flat)
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())


@given(shapes=_shapes)
def test_tensors_are_aligned_and_close_together(shapes: dict[str, tuple[int, ...]]):
    """Each begins at a multiple of 64 bytes, and wastes less than that."""
    weights = AdapterWeights.copy(Layout(shapes), _random(shapes, 0))
    starts = [tensor.data_ptr() % 64 for tensor in weights.values()]
    assert starts == [0] * len(shapes)
    assert 4 * len(weights.flat) <= sum(4 * prod(shape) + 60 for shape in shapes.values())


def test_weights_are_a_mapping_of_their_tensors():
    tensors = _random({"b": (2, 3), "a": (), "c": (5,)}, 0)
    weights = AdapterWeights.copy(Layout({name: tuple(tensor.shape) for name, tensor in tensors.items()}), tensors)
    assert list(weights) == ["b", "a", "c"]
    assert len(weights) == 3
    assert all(torch.equal(weights[name], tensor) for name, tensor in tensors.items())
    assert "d" not in weights


def test_memory_that_is_used_again_shows_nothing_of_another_adapter(monkeypatch: pytest.MonkeyPatch):
    """The gaps between tensors are set to zero."""
    monkeypatch.setattr(weights_module, "_PAGES", Pages())
    layout = Layout({"a": (3,), "b": (2, 9)})
    first = AdapterWeights(layout)
    address = first.flat.data_ptr()
    first.flat.fill_(float("nan"))
    del first
    again = AdapterWeights.copy(layout, {"a": torch.zeros(3), "b": torch.zeros(2, 9)})
    assert again.flat.data_ptr() == address
    assert not again.flat.any()


@pytest.mark.parametrize("num_kept", [0, 3])
def test_the_last_reference_unmaps_the_memory(num_kept: int, monkeypatch: pytest.MonkeyPatch):
    """Only the mappings that may be kept stay, and are counted, whatever stays beside them."""
    mappings, new_mapping = WeakSet[mmap.mmap](), mmap.mmap

    def note(*given: int, **options: int) -> mmap.mmap:
        mappings.add(mapping := new_mapping(*given, **options))
        return mapping

    layout = Layout({"a": (25_000,)})
    monkeypatch.setattr(weights_module, "_PAGES", pages := Pages(max_kept_bytes=num_kept * layout.nbytes))
    monkeypatch.setattr(mmap, "mmap", note)
    weights = [AdapterWeights.copy(layout, {"a": torch.ones(25_000)}) for _ in range(20)]
    for num_held in (20, 10, 0):
        del weights[: len(weights) - num_held]
        num_free = min(num_kept, 20 - num_held)
        assert sum(map(len, mappings)) == (num_held + num_free) * layout.nbytes
        assert pages.kept_bytes == num_free * layout.nbytes


def test_weights_may_end_while_others_look_for_memory(monkeypatch: pytest.MonkeyPatch):
    """Garbage may be collected while sizes of kept memory are compared or counted."""

    class Collecting(mmap.mmap):
        def __len__(self) -> int:
            ending.clear()
            return super().__len__()

    layouts = [Layout({"a": (size,)}) for size in (1000, 5000, 9000)]
    monkeypatch.setattr(weights_module, "_PAGES", pages := Pages())
    monkeypatch.setattr(mmap, "mmap", Collecting)
    ending = list[AdapterWeights]()
    first = [AdapterWeights(layout) for layout in layouts[:2]]
    more = [AdapterWeights(layout) for layout in layouts]
    first.clear()
    ending.append(more.pop())
    again = AdapterWeights(layouts[1])
    ending.append(more.pop())
    del again
    assert pages.kept_bytes == layouts[0].nbytes + 2 * layouts[1].nbytes + layouts[2].nbytes


def test_a_mapping_that_the_system_refuses_is_a_lack_of_memory(monkeypatch: pytest.MonkeyPatch):
    """Its own error would be that of a file."""
    monkeypatch.setattr(mmap, "mmap", Mock(side_effect=OSError(errno.ENOMEM, "Cannot allocate memory")))
    with pytest.raises(MemoryError, match="no memory for an adapter of 8192 bytes"):
        Pages().take(5000)
