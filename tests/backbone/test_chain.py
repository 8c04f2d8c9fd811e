"""Products one after the other against a loop over rows."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from peltier_backbone.native.chain import Chain, Product
from peltier_backbone.native.library import Library, Runs, load_library
from peltier_backbone.native.scattered import Offsets, Scattered
from torch import Tensor
from torch.nn import functional as F

LENGTHS, LAYERS, WIDTH = (1, 20, 700), 2, 24


@pytest.fixture(name="library")
def _library() -> Library:
    found = load_library()
    if found is None:
        pytest.skip("no native kernels were built here")
    return found


def _draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def _matrix(inner: int, outer: int) -> Scattered:
    return Scattered.of(_draw(len(LENGTHS), LAYERS, inner, outer) / inner**0.5)


def _bias(outer: int) -> Scattered:
    return Scattered.of(_draw(len(LENGTHS), LAYERS, outer))


def _apart(one: Scattered) -> Scattered:
    """The same numbers, each group's in memory of its own."""
    pieces = [_group(one, group).clone() for group in range(len(LENGTHS))]
    return Scattered(pieces[0], Offsets.between(pieces), pieces)


def _group(one: Scattered, group: int) -> Tensor:
    assert isinstance(one.kept, Tensor)
    return one.kept[group]


CHAINS = {
    "bottleneck": [
        Product(_matrix(WIDTH, 5), _bias(5), activation="swish"),
        Product(_matrix(5, WIDTH), _bias(WIDTH)),
    ],
    "low rank": [Product(_matrix(WIDTH, 1)), Product(_matrix(1, WIDTH))],
    "compacter": [
        Product(_matrix(8, 2), fold=3),
        Product(_matrix(6, 17), _bias(17), activation="gelu_new"),
        Product(_matrix(17, 9), _bias(9)),
        Product(_matrix(3, 8), fold=3),
    ],
    "columns first": [
        Product(Scattered.of(_draw(len(LENGTHS), LAYERS, WIDTH, 24).transpose(2, 3)), activation="relu"),
        Product(_matrix(WIDTH, 24), Scattered.of(_draw(len(LENGTHS), 1, 24).expand(-1, LAYERS, -1))),
    ],
    "gained": [
        Product(_matrix(WIDTH, 5)),
        Product(_matrix(5, WIDTH), _bias(WIDTH), activation="relu", gain=0.75),
    ],
}


def _plain(x: Tensor, products: Sequence[Product], layer: int, group: int) -> Tensor:
    for one in products:
        x = x.view(len(x) * one.fold, -1) @ _group(one.weight, group)[layer]
        if one.bias is not None:
            x = x + _group(one.bias, group)[layer]
        x = (
            {"none": lambda y: y, "relu": F.relu, "swish": F.silu, "gelu_new": lambda y: F.gelu(y, approximate="tanh")}[
                one.activation
            ](x)
            .mul(one.gain)
            .reshape(len(x) // one.fold, -1)
        )
    return x


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("name", CHAINS)
@torch.inference_mode()
def test_each_row_meets_its_groups_products(name: str, scaled: bool, dtype: torch.dtype, library: Library):
    """Of the layer asked for, one after the other, scaled and added; rounded once, where y is x itself too."""
    x, scale = _draw(sum(LENGTHS), WIDTH).to(dtype), _draw(sum(LENGTHS), 1) if scaled else None
    chain = Chain(library, CHAINS[name], Runs(LENGTHS))
    for layer in range(LAYERS):
        pieces = x.float().split(LENGTHS)
        made = torch.cat([_plain(piece, CHAINS[name], layer, group) for group, piece in enumerate(pieces)])
        expected = (x + (made if scale is None else made * scale)).to(dtype)
        apart, in_place = x.clone(), x.clone()
        chain.add(apart, x, layer, scale)
        chain.add(in_place, in_place, layer, scale)
        assert torch.equal(apart, in_place)
        torch.testing.assert_close(apart, expected, atol=1e-5 if dtype == torch.float32 else 2e-2, rtol=1e-2)


@pytest.mark.parametrize("name", CHAINS)
@torch.inference_mode()
def test_weights_are_read_where_they_lie(name: str, library: Library):
    """To the last bit the same whether the groups' weights are neighbours or not."""
    x = _draw(sum(LENGTHS), WIDTH)
    products = [replace(one, weight=_apart(one.weight), bias=one.bias and _apart(one.bias)) for one in CHAINS[name]]
    found = []
    for own in (CHAINS[name], products):
        found.append(x.clone())
        Chain(library, own, Runs(LENGTHS)).add(found[-1], x, 1)
    assert torch.equal(*found)


@torch.inference_mode()
def test_a_row_is_the_same_in_any_company(library: Library):
    """To the last bit, alone or among others, in the columns of a wider y."""
    x = _draw(sum(LENGTHS), WIDTH)
    y = torch.zeros(len(x), 2 * WIDTH)
    products = CHAINS["bottleneck"]
    Chain(library, products, Runs(LENGTHS)).add(y[:, WIDTH:], x, 1)
    own = [
        replace(
            one,
            weight=Scattered.of(_group(one.weight, 2)[None]),
            bias=one.bias and Scattered.of(_group(one.bias, 2)[None]),
        )
        for one in products
    ]
    alone = torch.zeros(1, WIDTH)
    Chain(library, own, Runs((1,))).add(alone, x[100:101], 1)
    assert torch.equal(y[100:101, WIDTH:], alone)
    assert not y[:, :WIDTH].any()
