"""The native product in 8 bits against the reference in torch, each library that this processor can run."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peltier_backbone.linear.activation import Activation
from peltier_backbone.linear.quantized_linear import QuantizedLinear, quantize_weight
from peltier_backbone.native import library
from peltier_backbone.native.library import Library
from peltier_backbone.native.packed import PackedInt8
from torch import Tensor
from torch.nn import functional as F

from tests.support import inner_kernels

# Rows, inner and outer: less than a group, a tile, a vector, a panel and a block, and more.
SIZES = [(1, 1, 1), (3, 5, 3), (7, 48, 64), (9, 130, 100), (100, 64, 65), (13, 1030, 17)]


_FOLDER = Path(library.__file__).parent


def _draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def _multiply(
    native: Library, x: Tensor, weight: Tensor, bias: Tensor | None, activation: Activation = "none"
) -> Tensor:
    return native.multiply_int8(x, _pack(native, weight, bias), activation)


def _pack(native: Library, weight: Tensor, bias: Tensor | None) -> PackedInt8:
    own = quantize_weight(weight)
    return native.pack_int8(own.values, own.scales, bias)


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_it_is_the_reference(native: Library, size: tuple[int, int, int], biased: bool) -> None:
    """Sums are equal, and so is what follows without a bias; a bias may be added in one instruction with the product
    before it, so that one rounding of the result's size is missing."""
    rows, inner, outer = size
    x, weight = _draw(rows, inner) + 0.5, _draw(outer, inner, seed=1)
    bias = _draw(outer, seed=2) if biased else None
    reference = QuantizedLinear(weight, bias)
    expected = reference(x)
    found = _multiply(native, x, weight, bias)
    if bias is None:
        assert torch.equal(found, expected)
    torch.testing.assert_close(found, expected, atol=2**-23 * float(expected.abs().max()), rtol=0)
    activations: dict[Activation, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "relu": F.relu}
    for activation, exact in activations.items():
        found = _multiply(native, x, weight, bias, activation)
        torch.testing.assert_close(found, exact(expected), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("gated", [False, True])
def test_a_feed_forward_is_its_products(native: Library, gated: bool) -> None:
    """To the last bit, in blocks of any number of rows."""
    expand = _pack(native, _draw(2 * 35 if gated else 35, 20), _draw(70 if gated else 35))
    contract = _pack(native, _draw(20, 35), None)
    for rows in (0, 1, 47, 110):
        x = _draw(rows, 20)
        inner = inner_kernels.activate(native, native.multiply_int8(x, expand), "gelu_new", gated=gated)
        found = inner_kernels.feed_forward_int8(native, x, expand, contract, "gelu_new", gated=gated)
        assert torch.equal(found, native.multiply_int8(inner, contract))


def test_a_row_is_the_same_in_any_tile(native: Library) -> None:
    """Alone, and with any number of rows before and after it."""
    x, weight, bias = _draw(110, 70), _draw(80, 70, seed=1), _draw(80, seed=2)
    together = _multiply(native, x, weight, bias, "gelu")
    for first, last in ((0, 1), (5, 7), (3, 16), (90, 101), (104, 110)):
        assert torch.equal(_multiply(native, x[first:last], weight, bias, "gelu"), together[first:last])


def test_threads_change_no_bit(native: Library) -> None:
    """Of a size that is worth several threads, which they do not divide evenly."""
    x, weight, before = _draw(307, 300), _draw(200, 300, seed=1), torch.get_num_threads()
    contract = _pack(native, _draw(300, 200), None)

    def compute() -> Tensor:
        fed = inner_kernels.feed_forward_int8(native, x, _pack(native, weight, None), contract, "relu")
        return torch.cat((_multiply(native, x, weight, None), fed), 1)

    try:
        torch.set_num_threads(1)
        alone = compute()
        for count in (2, 5):
            torch.set_num_threads(count)
            assert torch.equal(compute(), alone)
    finally:
        torch.set_num_threads(before)


def test_columns_of_a_wider_tensor_are_read(native: Library) -> None:
    """Rows may lie apart."""
    x, weight = _draw(5, 40), _draw(7, 20, seed=1)
    assert torch.equal(_multiply(native, x[:, 3:23], weight, None), _multiply(native, x[:, 3:23].clone(), weight, None))


def test_rows_are_read_from_the_packed_weight(native: Library) -> None:
    """As the dequantised weight has them, also in the last panel and the last group."""
    own, ids = quantize_weight(_draw(70, 30)), torch.tensor([[0, 69], [3, 64]])
    packed = native.pack_int8(own.values, own.scales)
    assert torch.equal(native.rows_int8(packed, ids), own.rows(ids))
    for missing in (70, -1):
        with pytest.raises(IndexError, match="from 0 to 69"):
            native.rows_int8(packed, torch.tensor([missing]))
