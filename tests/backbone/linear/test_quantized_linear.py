"""Maps in 8 bits: the ranges and the rounding of weights and activations, and exact sums."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_backbone.errors import BackboneError
from peltier_backbone.linear import quantized_linear
from peltier_backbone.linear.quantized_linear import (
    MAX_INNER,
    NativeQuantizedLinear,
    QuantizedLinear,
    quantize_rows,
    quantize_weight,
)
from torch import Tensor
from torch.nn import functional as F

NUMBERS = st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False)
ROWS = st.lists(st.lists(NUMBERS, min_size=5, max_size=5), min_size=1, max_size=4)


@given(ROWS)
def test_a_row_is_its_values_to_half_a_step(rows: list[list[float]]):
    """Every number of a row is represented to half of the row's scale, at its ends to a whole one; 0 exactly."""
    x = torch.tensor(rows)
    quantized = quantize_rows(x)
    found = (quantized.values.double() - quantized.zeros) * quantized.scales.double()
    assert ((found - x).abs() <= quantized.scales.double() * 1.001 + 1e-30).all()
    inside = (quantized.values > 0) & (quantized.values < 255)
    assert ((found - x).abs()[inside] <= (quantized.scales.double() * 0.501).expand_as(x)[inside]).all()
    assert (quantized.zeros >= 0).all()
    assert (quantized.zeros <= 255).all()


@given(ROWS)
def test_a_row_is_quantized_alone(rows: list[list[float]]):
    """The other rows of a batch never change a value."""
    together = quantize_rows(torch.tensor(rows))
    for number, row in enumerate(rows):
        alone = quantize_rows(torch.tensor([row]))
        assert torch.equal(alone.values[0], together.values[number])
        assert torch.equal(alone.scales[0], together.scales[number])


@given(ROWS)
def test_a_weight_is_its_values_to_half_a_step(rows: list[list[float]]):
    """Every channel has its scale, which a weight or a pair of weights needs, and is symmetric around 0."""
    weight = torch.tensor(rows)
    quantized = quantize_weight(weight)
    error = (quantized.dequantize().double() - weight).abs()
    assert (error <= quantized.scales.double()[:, None] * 0.501 + 1e-30).all()
    largest = quantized.values.int().abs().amax(1)
    assert ((largest == 127) | (_largest_pairs(quantized.values) >= 126) | (weight.abs().amax(1) < 1e-30)).all()
    assert torch.equal(quantize_weight(-weight).values, -quantized.values)


def test_a_weight_is_quantized_in_pieces(monkeypatch: pytest.MonkeyPatch):
    """A weight that is larger than a piece has the values of its channels alone, and no channel is cut."""
    weight = torch.randn(7, 5)
    whole = quantize_weight(weight)
    monkeypatch.setattr(quantized_linear, "_PIECE_WEIGHTS", 12)  # two channels at a time
    pieces = quantize_weight(weight)
    assert torch.equal(pieces.values, whole.values)
    assert torch.equal(pieces.scales, whole.scales)


@given(ROWS)
def test_two_adjacent_products_fit_16_bits(rows: list[list[float]]):
    """Two adjacent weights of one sign add up to at most 128, so their products with activations to at most 32,640."""
    assert (_largest_pairs(quantize_weight(torch.tensor(rows)).values) <= 128).all()


def _largest_pairs(values: Tensor) -> Tensor:
    """The largest absolute sum of two adjacent values of one sign, for each row of an odd number of values."""
    pairs = F.pad(values.int(), (0, 1)).view(len(values), -1, 2)
    return torch.maximum(pairs.clamp(min=0).sum(2), -pairs.clamp(max=0).sum(2)).amax(1)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_stays_so(bad: float):
    """A row without a range has no finite scale, so its results are not finite either; its neighbours keep theirs."""
    x = torch.tensor([[1.0, bad, -1.0], [1.0, 0.5, -1.0]])
    quantized = quantize_rows(x)
    assert not quantized.scales[0].isfinite()
    assert quantized.scales[1] == 2 / 255


def test_rows_are_read_from_the_quantized_weight():
    """As the whole dequantised weight has them."""
    quantized = quantize_weight(torch.randn(7, 5, generator=torch.Generator().manual_seed(0)))
    ids = torch.tensor([[6, 0], [3, 3]])
    assert torch.equal(quantized.rows(ids), quantized.dequantize()[ids])


def test_too_many_inputs_are_refused():
    """The largest sum of the most inputs fits in 32 bits, of one more it does not."""
    assert MAX_INNER * 255 * 127 <= 2**31 - 1 < (MAX_INNER + 1) * 255 * 127
    with pytest.raises(
        BackboneError, match=f"a map of {MAX_INNER + 1} inputs cannot be int8; the limit is {MAX_INNER}"
    ):
        quantize_weight(torch.zeros(1, MAX_INNER + 1))


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
