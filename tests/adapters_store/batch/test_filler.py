"""Batches of many sizes compute products of few sizes, with the same answers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.filler import num_missing
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.generation.generation import Generator, create_draft
from peltier_adapters.generation.search import Decoding
from peltier_adapters.residency.bank import Banks, Resident
from peltier_backbone.load import Backbone
from peltier_backbone.packing import Encoded
from torch.utils._python_dispatch import TorchDispatchMode

_SIZES = range(33, 129)
_PRODUCTS = ("_linear_pointwise", "mm", "addmm")


class Sizes(TorchDispatchMode):
    """The numbers of rows of the products that torch computes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = set[int]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in _PRODUCTS:
            self.seen.add(out.shape[0])
        return out


@pytest.fixture(params=["bert", "t5"])
def backbone(request: pytest.FixtureRequest) -> Backbone:
    one: Backbone = request.getfixturevalue(request.param)
    return one


@pytest.fixture
def resident(backbone: Backbone, make_artifact: Callable[..., bytes]) -> Resident:
    return Banks(backbone).add(read_artifact(make_artifact(backbone, "bitfit"), backbone))


def _rows(resident: Resident, num_tokens: int) -> list[Row]:
    lengths = [16] * (num_tokens // 16) + [num_tokens % 16] * bool(num_tokens % 16)
    return [Row(Encoded((5,) * length, (0,) * length), resident) for length in lengths]


@given(st.integers(1, 1 << 20))
def test_at_most_a_sixteenth_is_added(num_tokens: int) -> None:
    assert 0 <= 16 * num_missing(num_tokens) < num_tokens + 16


@given(st.integers(0, 12))
def test_between_two_powers_of_two_are_at_most_sixteen_sizes(power: int) -> None:
    sizes = {size + num_missing(size) for size in range(2**power, 2 ** (power + 1))}
    assert len(sizes) <= 17
    assert all(num_missing(size) == 0 for size in sizes)


def test_ever_new_batches_compute_products_of_few_sizes(backbone: Backbone, resident: Resident) -> None:
    """On a T5 those of the decoder too."""
    with Sizes() as sizes:
        for num_tokens in _SIZES:
            forward(backbone, _rows(resident, num_tokens))
    rounded = {size for size in sizes.seen if size >= _SIZES[0]}
    assert rounded
    assert all(num_missing(size) == 0 for size in rounded)


def test_inputs_of_generated_texts_compute_products_of_few_sizes(t5: Backbone) -> None:
    with Sizes() as sizes:
        for num_tokens in _SIZES:
            Generator(t5).join([create_draft(t5, Row(Encoded((5,) * num_tokens, (0,) * num_tokens)), Decoding(1))])
    rounded = {size for size in sizes.seen if size >= _SIZES[0]}
    assert rounded
    assert all(num_missing(size) == 0 for size in rounded)


def test_what_is_added_has_no_answer_and_changes_none(
    backbone: Backbone, resident: Resident, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = _rows(resident, 65)
    filled = forward(backbone, rows)
    monkeypatch.setattr("peltier_adapters.batch.forward.create_fillers", lambda *_: [])
    exact = forward(backbone, rows)
    assert len(filled) == len(rows)
    for one, other in zip(filled, exact, strict=True):
        torch.testing.assert_close(one.logits, other.logits, rtol=1e-5, atol=1e-5)
