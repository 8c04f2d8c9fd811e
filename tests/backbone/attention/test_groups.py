"""Groups of rows of similar lengths: complete, in order again afterwards, and with little padding."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_backbone.attention.groups import Groups

_lengths = st.lists(st.integers(1, 80), min_size=1, max_size=40)


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
