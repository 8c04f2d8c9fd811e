"""Contiguous tensors: exact values and offsets, little overhead, and memory that is freed."""

from math import prod
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_adapters.artifact import weights as weights_module
from peltier_adapters.artifact.pages import Pages
from peltier_adapters.artifact.weights import Layout, Weights
from torch import Tensor

_shapes = st.dictionaries(
    st.text("abc.", min_size=1, max_size=4),
    st.lists(st.integers(1, 9), max_size=4).map(tuple),
    max_size=6,
)


def _random(layout_shapes: dict[str, tuple[int, ...]], seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) for name, shape in layout_shapes.items()}


@given(shapes=_shapes)
def test_what_is_found_is_what_was_put_in(shapes: dict[str, tuple[int, ...]]):
    """Bit by bit, for any shapes."""
    layout, tensors = Layout(shapes), _random(shapes, 0)
    found = layout.views(Weights.copy(layout, tensors).flat)
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())


@given(shapes=_shapes)
def test_tensors_are_aligned_and_close_together(shapes: dict[str, tuple[int, ...]]):
    """Each begins at a multiple of 64 bytes, and less than that is lost for it."""
    weights = Weights.copy(Layout(shapes), _random(shapes, 0))
    starts = [tensor.data_ptr() % 64 for tensor in weights.values()]
    assert starts == [0] * len(shapes)
    assert 4 * len(weights.flat) <= sum(4 * prod(shape) + 60 for shape in shapes.values())


def test_weights_are_a_mapping_of_their_tensors():
    """Names, order and values are those given."""
    tensors = _random({"b": (2, 3), "a": (), "c": (5,)}, 0)
    weights = Weights.copy(Layout({name: tuple(tensor.shape) for name, tensor in tensors.items()}), tensors)
    assert list(weights) == ["b", "a", "c"]
    assert len(weights) == 3
    assert all(torch.equal(weights[name], tensor) for name, tensor in tensors.items())
    assert "d" not in weights


def test_memory_that_is_used_again_shows_nothing_of_another_adapter(monkeypatch: pytest.MonkeyPatch):
    """The gaps between tensors are zero, whatever was there before."""
    monkeypatch.setattr(weights_module, "_PAGES", Pages())
    layout = Layout({"a": (3,), "b": (2, 9)})
    first = Weights(layout)
    address = first.flat.data_ptr()
    first.flat.fill_(float("nan"))
    del first
    again = Weights.copy(layout, {"a": torch.zeros(3), "b": torch.zeros(2, 9)})
    assert again.flat.data_ptr() == address
    assert not again.flat.any()


@pytest.mark.parametrize("megabytes", [0.1, 1.4])
def test_memory_goes_back_to_the_system(megabytes: float, monkeypatch: pytest.MonkeyPatch):
    """With the last reference, also in the middle of others that stay."""
    monkeypatch.setattr(weights_module, "_PAGES", Pages(max_kept_bytes=0))
    layout = Layout({"a": (int(megabytes * 250_000),)})
    ones = {"a": torch.ones(int(megabytes * 250_000))}
    before = _resident_bytes()
    kept = [Weights.copy(layout, ones) for _ in range(200)]
    full = _resident_bytes() - before
    assert full >= 0.95 * 200 * kept[0].nbytes
    del kept[::2]
    assert _resident_bytes() - before <= 0.6 * full
    kept.clear()
    assert _resident_bytes() - before <= 0.1 * full


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
