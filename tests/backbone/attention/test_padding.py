"""The padded view of packed rows."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_backbone.attention.padding import Padding

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=6)


@given(lengths=LENGTHS)
def test_padding_comes_off_again(lengths: list[int]):
    """Every token has its place in its row, and comes back from it."""
    x = torch.arange(2.0 * sum(lengths)).view(-1, 2)
    padding = Padding(lengths, torch.device("cpu"))
    padded = padding.pad(x)
    assert padded.shape == (len(lengths), max(lengths), 2)
    for row, own in zip(padded, x.split(lengths), strict=True):
        assert torch.equal(row[: len(own)], own)
    assert torch.equal(padding.unpad(padded), x)


@given(lengths=LENGTHS)
def test_a_pad_reads_its_own_row(lengths: list[int]):
    """What one row holds never reaches another one, not even masked: infinities are no reason for a NaN elsewhere."""
    x = torch.cat([torch.full((length, 1), float(row)) for row, length in enumerate(lengths)])
    padded = Padding(lengths, torch.device("cpu")).pad(x)
    assert torch.equal(padded[..., 0], torch.arange(float(len(lengths)))[:, None].expand(-1, max(lengths)))


@given(lengths=LENGTHS)
def test_the_mask_hides_the_pads(lengths: list[int]):
    """0 on a token, -inf on a pad."""
    mask = Padding(lengths, torch.device("cpu")).mask(torch.float32)
    assert [(row == 0).sum().item() for row in mask] == lengths
    assert set(mask.unique().tolist()) <= {0.0, -math.inf}
