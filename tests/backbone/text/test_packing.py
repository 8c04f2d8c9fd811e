"""Packed rows."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.packing import Encoded, pack


@given(lengths=st.lists(st.integers(1, 20), min_size=1, max_size=8))
def test_rows_come_back_out(lengths: list[int], bert: Backbone):
    """Starts, lengths and positions describe each row exactly."""
    rows = [Encoded(tuple(range(length)), (1,) * length) for length in lengths]
    packed = pack(rows, bert.config, torch.device("cpu"))
    assert packed.lengths == tuple(lengths)
    assert packed.starts[-1] == len(packed.ids) == len(packed.types)
    for row, first, last in zip(rows, packed.starts, packed.starts[1:], strict=False):
        assert tuple(packed.ids[first:last].tolist()) == row.ids
        assert packed.positions[first:last].tolist() == list(range(len(row)))
    assert packed.first_tokens.tolist() == list(packed.starts[:-1])


def test_an_offset_moves_a_rows_positions_alone(bert: Backbone, roberta: Backbone):
    """The offset of a row does not depend on its neighbours, padded or not, and does not move them."""
    rows = [Encoded((0, 5, 2), (0, 0, 0)), Encoded((0, 2), (0, 0), offset=4).padded(3, 0), Encoded((0, 2), (0, 0))]
    assert bert.pack(rows).positions.tolist() == [0, 1, 2, 4, 5, 6, 0, 1]
    assert roberta.pack(rows).positions.tolist() == [2, 3, 4, 6, 7, 8, 2, 3]


def test_roberta_positions_begin_after_its_padding(roberta: Backbone):
    """The positions of each row begin at two, after any other row."""
    packed = roberta.pack([Encoded((0, 5, 2), (0, 0, 0)), Encoded((0, 2), (0, 0))])
    assert packed.positions.tolist() == [2, 3, 4, 2, 3]


def test_only_roberta_leaves_out_its_padding(bert: Backbone, roberta: Backbone):
    """A token that is the padding has the padding's position, whatever the offset; a row may count all its tokens."""
    ids = (1, 5, 1, 2)
    rows = [Encoded(ids, (0,) * 4), Encoded(ids, (0,) * 4, offset=4), Encoded(ids, (0,) * 4, counts_padding=True)]
    assert roberta.pack(rows).positions.tolist() == [1, 2, 1, 3, 1, 6, 1, 7, 2, 3, 4, 5]
    assert bert.pack([Encoded((0, 5, 0), (0, 0, 0))]).positions.tolist() == [0, 1, 2]
