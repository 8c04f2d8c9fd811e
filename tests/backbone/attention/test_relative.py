"""Relative position bias: buckets by hand, and the lines and squares made of them."""

import math

import pytest
import torch
from peltier_backbone.attention.relative import buckets, create_bias
from torch import Tensor
from transformers.models.t5.modeling_t5 import T5Attention

ENCODER = {-130: 15, -100: 15, -50: 13, -10: 8, -7: 7, 0: 0, 1: 17, 7: 23, 8: 24, 10: 24, 100: 31}
DECODER = {-130: 31, -100: 30, -50: 24, -20: 17, -10: 10, -7: 7, 0: 0, 1: 0, 100: 0}


HEADS = 3


def _table(num_buckets: int = 32) -> Tensor:
    return torch.randn(num_buckets, HEADS, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("bidirectional", "expected"), [(True, ENCODER), (False, DECODER)])
def test_buckets_by_hand(bidirectional: bool, expected: dict[int, int]):
    """32 buckets up to distance 128, as the authors' code gives them."""
    found = buckets(torch.tensor([*expected]), 32, 128, bidirectional=bidirectional)
    assert found.tolist() == [*expected.values()]


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (32, 100), (7, 9), (4, 3), (64, 1000)])
def test_buckets_are_those_of_transformers(num_buckets: int, max_distance: int, bidirectional: bool):
    """At every distance, the edges of the logarithmic buckets among them."""
    relative = torch.arange(-1500, 1501)
    theirs = T5Attention._relative_position_bucket(relative, bidirectional, num_buckets, max_distance)
    assert torch.equal(buckets(relative, num_buckets, max_distance, bidirectional=bidirectional), theirs)


@pytest.mark.parametrize("width", [1, 2, 40, 300])
def test_an_encoders_square_is_its_table_by_bucket(width: int):
    """[heads, queries, keys], beyond the longest distance too."""
    bias = create_bias(_table(), HEADS, 128, bidirectional=True)
    places = torch.arange(width)
    relative = places[None, :] - places[:, None]
    expected = _table()[buckets(relative, 32, 128, bidirectional=True)].permute(2, 0, 1)
    assert torch.equal(bias.square(width), expected)


def test_a_decoders_square_shows_no_later_token():
    """-inf above the diagonal, the table by bucket on it and below."""
    square = create_bias(_table(), HEADS, 128, bidirectional=False).square(200)
    later = torch.ones(200, 200, dtype=torch.bool).triu(1)
    assert (square[:, later] == -math.inf).all()
    places = torch.arange(200)
    expected = _table()[buckets(places[None, :] - places[:, None], 32, 128, bidirectional=False)].permute(2, 0, 1)
    assert torch.equal(square[:, ~later], expected[:, ~later])


@pytest.mark.parametrize("width", [1, 2, 40, 300])
def test_a_line_has_every_row_of_a_square(width: int):
    """A query's biases lie one element before those of the query before it, so kernels read the line as a square."""
    bias = create_bias(_table(), HEADS, 128, bidirectional=True)
    line = bias.line_around(width)
    middle = line.shape[1] // 2
    rows = [line[:, middle - query : middle - query + width] for query in range(width)]
    assert torch.equal(torch.stack(rows, 1), bias.square(width))


def test_there_are_few_lines():
    """Rows of any length up to 512 share ten."""
    bias = create_bias(_table(), HEADS, 128, bidirectional=True)
    assert len({bias.line_around(width).data_ptr() for width in range(1, 513)}) == 10
