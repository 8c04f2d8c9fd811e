"""The padded view of packed rows."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_backbone.attention.padding import Groups, Padding

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=6)
_lengths = st.lists(st.integers(1, 80), min_size=1, max_size=40)


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


@given(lengths=_lengths)
def test_every_row_is_in_one_group_of_similar_lengths(lengths: list[int]):
    """No row is shorter than two thirds of its group's longest."""
    groups = list(Groups(lengths, lengths, torch.device("cpu")))
    assert sorted(int(row) for group in groups for row in group.rows) == list(range(len(lengths)))
    for group in groups:
        assert group.padding.width == max(lengths[row] for row in group.rows)
        assert min(lengths[row] for row in group.rows) >= 2 / 3 * group.padding.width


@given(lengths=_lengths)
def test_what_is_joined_is_in_the_order_of_the_rows(lengths: list[int]):
    """Each group's padded view holds its own rows' tokens, which come back to their places."""
    groups = Groups(lengths, lengths, torch.device("cpu"))
    x = torch.arange(2.0 * sum(lengths)).view(-1, 2)
    assert torch.equal(groups.join([one.padding.unpad(one.padding.pad(x)) for one in groups]), x)
