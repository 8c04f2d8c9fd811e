"""Weights and activations in 8 bits: the ranges, the rounding and what has no range."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_backbone.errors import BackboneError
from peltier_backbone.linear import quantization
from peltier_backbone.linear.quantization import MAX_INNER, quantize_rows, quantize_weight
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
    monkeypatch.setattr(quantization, "_PIECE_WEIGHTS", 12)  # two channels at a time
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
