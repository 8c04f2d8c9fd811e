"""The frozen map in 8 bits: exact sums, and its gradient."""

import pytest
import torch
from peltier_backbone.linear.quantization import quantize_rows, quantize_weight
from peltier_backbone.linear.quantized_linear import NativeQuantizedLinear, QuantizedLinear
from torch import Tensor
from torch.nn import functional as F

Kernel = type[QuantizedLinear]
SIZES = [(1, 1), (3, 5), (48, 48), (33, 130), (7, 1030)]  # out, in


@pytest.fixture(params=[QuantizedLinear, NativeQuantizedLinear], ids=["torch", "native"])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    """Both ways to compute one definition."""
    return request.param


def _draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def _expected(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The product of what the 8 bits stand for, in float64."""
    rows, own = quantize_rows(x), quantize_weight(weight)
    inputs = (rows.values.double() - rows.zeros) * rows.scales.double()
    return F.linear(inputs, own.values.double() * own.scales.double()[:, None], None if bias is None else bias.double())


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_it_is_the_product_of_the_quantized_numbers(kernel: Kernel, size: tuple[int, int], biased: bool):
    """To the rounding of four operations in float32, with and without a bias, for any number of tokens and for none."""
    weight, bias = _draw(*size), _draw(size[0], seed=1) if biased else None
    linear = kernel(weight, bias)
    for tokens in (0, 1, 17):
        x = _draw(tokens, size[1], seed=2) + 0.5
        expected = _expected(x, weight, bias)
        tolerance = 4 * 2**-24 * (1 + float(expected.abs().max()) if tokens else 1)
        torch.testing.assert_close(linear(x).double(), expected, atol=tolerance, rtol=0)


def test_a_result_does_not_depend_on_the_other_rows(kernel: Kernel):
    """To the last bit: sums are exact, so their order is free."""
    linear, x = kernel(_draw(33, 700), _draw(33)), _draw(23, 700)
    together = linear(x)
    for first, last in ((0, 1), (5, 7), (8, 23)):
        assert torch.equal(linear(x[first:last]), together[first:last])


def test_the_largest_sums_are_exact(kernel: Kernel):
    """The extremes of both ranges, of one sign beside a zero, over more inputs than float32 holds at once."""
    inner = 40_000
    linear = kernel(torch.tensor([[127.0, 0.0]]).repeat(1, inner // 2))
    assert linear(torch.full((1, inner), 255.0)).item() == pytest.approx(inner // 2 * 127 * 255, rel=1e-6)


def test_gradients_pass_straight_through(kernel: Kernel):
    """Forward is the quantised map, backward that of the dequantised weight, as if activations were not rounded."""
    weight, bias = _draw(33, 20), _draw(33)
    linear = kernel(weight, bias)
    x = _draw(6, 20).requires_grad_()
    y = linear(x)
    (y * torch.linspace(-1, 1, 33)).sum().backward()
    with torch.no_grad():
        assert torch.equal(y, linear(x))
    torch.testing.assert_close(x.grad, torch.linspace(-1, 1, 33).expand(6, 33) @ linear.weights()[0])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_row_is_not_hidden(kernel: Kernel, bad: float):
    """What is not finite gives results that are not finite, in its own row alone."""
    x = _draw(3, 20)
    x[1, 4] = bad
    found = kernel(_draw(5, 20))(x)
    assert not found[1].isfinite().any()
    assert found[0].isfinite().all()
    assert found[2].isfinite().all()


def test_the_weights_are_the_dequantized_ones(kernel: Kernel):
    """Hashing them hashes what is computed with."""
    weight, bias = _draw(7, 5), _draw(7)
    dense, kept = kernel(weight, bias).weights()
    assert torch.equal(dense, quantize_weight(weight).dequantize())
    assert kept is bias
