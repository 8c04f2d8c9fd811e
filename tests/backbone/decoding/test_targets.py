"""Rows of token trees."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_backbone.decoding.targets import Targets, ancestry

TREES = st.integers(1, 12).flatmap(lambda num: st.tuples(*(st.integers(-1, node - 1) for node in range(num))))


def test_rows_lie_back_to_back():
    """Each row has its tokens, its length and its start."""
    targets = Targets.create([(0, 5), (0,), (0, 7, 8)], None, torch.device("cpu"))
    assert targets.ids.tolist() == [0, 5, 0, 0, 7, 8]
    assert (targets.lengths, targets.starts) == ((2, 1, 3), (0, 2, 3, 6))


@given(parents=TREES)
def test_a_node_sees_itself_and_what_leads_to_it(parents: tuple[int, ...]):
    """Followed by hand from every node to its first one."""
    seen = ancestry(parents)
    for node in range(len(parents)):
        expected, current = set(), node
        while current >= 0:
            expected.add(current)
            current = parents[current]
        assert set(seen[node].nonzero().view(-1).tolist()) == expected
