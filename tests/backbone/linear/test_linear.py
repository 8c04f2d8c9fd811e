"""Frozen maps: native products against torch, and those whose heads share keys and values."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_backbone.backbone import Backbone
from peltier_backbone.linear.linear import LinearKernel, NativeLinear, PlainLinear, SharedHeads, choose_linear
from peltier_backbone.linear.quantized_linear import NativeQuantizedLinear, QuantizedLinear
from peltier_backbone.native.choice import kernels_in_use
from torch import Tensor
from torch.nn import functional as F

from tests.support.levels import fastest_level

SIZES = [(1, 1), (3, 5), (48, 48), (88, 48), (33, 130), (97, 34)]  # out, in
TOKENS = (1, 2, 17, 300)


def _draw(out: int, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(out)
    return (torch.randn(out, width, generator=generator) / width**0.5).to(dtype), torch.randn(
        out, generator=generator
    ).to(dtype)


def _close(one: Tensor, other: Tensor) -> None:
    """float32 to another order of summation; bfloat16 to one unit in its last place."""
    tolerance = 1e-5 if one.dtype == torch.float32 else 2**-7
    torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_native_equals_plain(size: tuple[int, int], dtype: torch.dtype, biased: bool):
    """Both kernels, with and without a bias, for any number of tokens."""
    weight, bias = _draw(*size, dtype)
    native, plain = (kernel(weight, bias if biased else None) for kernel in (NativeLinear, PlainLinear))
    for tokens in TOKENS:
        x = torch.randn(tokens, size[1], generator=torch.Generator().manual_seed(tokens)).to(dtype)
        _close(native(x), plain(x))
        assert native(x).shape == (tokens, size[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_packed_weight_is_the_weight(size: tuple[int, int], dtype: torch.dtype):
    """Un-packing gives the very bits back: hashing the weights in memory is honest."""
    weight, bias = _draw(*size, dtype)
    dense, kept = NativeLinear(weight, bias).weights()
    assert torch.equal(dense, weight)
    assert torch.equal(kept, bias)


@given(tokens=st.integers(2, 300), first=st.integers(0, 298), dtype=st.sampled_from([torch.float32, torch.bfloat16]))
def test_a_row_is_the_same_among_any_others(tokens: int, first: int, dtype: torch.dtype):
    """To the last bit, wherever it stands and however many there are."""
    weight, bias = _draw(100, 70, dtype)
    native = NativeLinear(weight, bias)
    x = torch.randn(tokens, 70, generator=torch.Generator().manual_seed(tokens)).to(dtype)
    row = first % tokens
    assert torch.equal(native(x)[row:], native(x[row:]))


def test_gradients_pass_through_the_frozen_map():
    """The backward of the native kernel is autograd's own, and the weight asks for no gradient."""
    weight, bias = _draw(33, 20, torch.float32)
    gradients = []
    for kernel in (NativeLinear, PlainLinear):
        x = torch.randn(6, 20, generator=torch.Generator().manual_seed(0)).requires_grad_()
        y = kernel(weight, bias)(x)
        (y * torch.linspace(-1, 1, 33)).sum().backward()
        gradients.append(x.grad)
    assert gradients[0] is not None
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-5, rtol=1e-5)


def test_the_gradient_is_numerically_right():
    """Of a sum of outputs: the sums of the weight's columns."""
    weight, bias = _draw(5, 7, torch.float32)
    x = torch.randn(3, 7, generator=torch.Generator().manual_seed(1)).requires_grad_()
    NativeLinear(weight, bias)(x).sum().backward()
    torch.testing.assert_close(x.grad, weight.sum(0).expand(3, 7), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("window", [(slice(None), slice(4, 8)), (slice(None, None, 2), slice(0, 12, 3))], ids=str)
def test_a_non_contiguous_input_is_fine(window: tuple[slice, slice]):
    """Slices of the fused projection reach the kernels as views."""
    weight, bias = _draw(5, 4, torch.float32)
    x = torch.randn(6, 12)[window]
    _close(NativeLinear(weight, bias)(x), F.linear(x, weight, bias))


def test_off_the_cpu_the_plain_kernel_runs():
    """The native kernels are for a CPU."""
    assert choose_linear(torch.device("cuda"), torch.float32) is PlainLinear


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_maps_are_those_of_the_kernels_in_use(dtype: torch.dtype):
    """Native at a level, and torch's where torch computes."""
    for kernels, chosen in ((fastest_level(), NativeLinear), ("torch", PlainLinear)):
        with kernels_in_use(kernels):
            assert choose_linear(torch.device("cpu"), dtype) is chosen


HEADS, KEY_HEADS, SIZE, WIDTH = 6, 2, 4, 10
KERNELS = (PlainLinear, NativeLinear, QuantizedLinear, NativeQuantizedLinear)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_each_head_has_the_keys_and_values_of_its_group(kernel: LinearKernel):
    """Results, gradients and the plain weight are those of a map in which the rows of each key and value are there once
    for each of its heads."""
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(HEADS * SIZE, WIDTH, generator=generator)
    key, value = (torch.randn(KEY_HEADS * SIZE, WIDTH, generator=generator) for _ in range(2))
    repeated = [x.unflatten(0, (KEY_HEADS, SIZE)).repeat_interleave(3, 0).flatten(0, 1) for x in (key, value)]
    shared = SharedHeads(kernel(torch.cat((query, key, value))), HEADS, KEY_HEADS)
    whole = kernel(torch.cat((query, *repeated)))
    torch.testing.assert_close(shared.weights()[0], whole.weights()[0])
    gradients = []
    for linear in (shared, whole):
        x = torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(1)).requires_grad_()
        y = linear(x)
        (y * torch.linspace(-1, 1, y.shape[1])).sum().backward()
        gradients.append((y, x.grad))
    # Sums of 72 products, in another order.
    torch.testing.assert_close(*gradients, atol=72 * 2**-23, rtol=72 * 2**-23)


def test_the_product_has_each_shared_key_once(eurobert: Backbone, eurobert_int8: Backbone):
    """The kernels read 48 queries, 24 keys and 24 values for four heads that share by twos, in every precision."""
    for backbone in (eurobert, eurobert_int8):
        placed = backbone.bert.layers[0].attention.query_key_value.place()  # type: ignore[union-attr]
        assert placed is not None
        assert (placed.inner, placed.outer) == (48, 96)
