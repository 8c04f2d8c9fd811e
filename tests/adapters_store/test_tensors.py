"""Tensors of several adapters: the same numbers side by side and apart."""

from ctypes import c_float, c_int64

import pytest
import torch
from peltier_adapters.tensors import Gathered, Tensors
from peltier_adapters.weights import Layout, Weights
from peltier_backbone.native.scattered import Offsets
from torch import Tensor

SHAPES = {"lora.down": (2, 3, 5), "lora.up": (2, 5, 3), "norm.weight": (7,)}


@pytest.fixture(name="drawn")
def _drawn() -> list[dict[str, Tensor]]:
    """The tensors of three adapters."""
    generator = torch.Generator().manual_seed(0)
    return [{name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()} for _ in range(3)]


@pytest.fixture(name="flats")
def _flats(drawn: list[dict[str, Tensor]]) -> list[Tensor]:
    return [Weights.copy(Layout(SHAPES), tensors).flat for tensors in drawn]


@pytest.fixture(name="gathered", params=["gathered", "stacked"])
def _gathered(request: pytest.FixtureRequest, drawn: list[dict[str, Tensor]], flats: list[Tensor]) -> Tensors:
    if request.param == "gathered":
        return Gathered(Layout(SHAPES), flats, Offsets.between(flats))
    return Tensors({name: torch.stack([tensors[name] for tensors in drawn]) for name in SHAPES})


def test_names_and_values_are_those_of_the_adapters(gathered: Tensors, drawn: list[dict[str, Tensor]]):
    """With a leading dimension of adapters, in their order."""
    assert list(gathered) == list(SHAPES)
    assert len(gathered) == len(SHAPES)
    for name in SHAPES:
        assert torch.equal(gathered[name], torch.stack([tensors[name] for tensors in drawn]))
    assert gathered.get("norm.bias") is None


def test_a_parts_own_tensors_have_short_names(gathered: Tensors):
    """By the rest of their names, and nobody else's among them."""
    own = gathered.under("lora.")
    assert list(own) == ["down", "up"]
    assert "up" in own
    assert "norm.weight" not in own
    assert torch.equal(own["up"], gathered["lora.up"])


def test_each_groups_tensor_begins_at_its_offset(gathered: Tensors, drawn: list[dict[str, Tensor]]):
    """In memory, as the kernels find it: elements after the first group's."""
    apart = gathered.under("lora.").apart("up")[1]
    offsets = (c_int64 * len(drawn)).from_address(apart.offsets.address)
    for offset, tensors in zip(offsets, drawn, strict=True):
        found = (c_float * 15).from_address(apart.first.data_ptr() + 4 * offset)
        assert list(found) == tensors["lora.up"][1].flatten().tolist()


def test_what_is_read_apart_is_not_copied(flats: list[Tensor]):
    """The kernels read the adapters' own memory."""
    apart = Gathered(Layout(SHAPES), flats, Offsets.between(flats)).under("lora.").apart("up")
    assert apart.first.untyped_storage().data_ptr() == flats[0].untyped_storage().data_ptr()
