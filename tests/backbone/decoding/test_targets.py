"""Given tokens of a decoder: trees of them, and the logits of their nodes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_backbone.backbone import Backbone
from peltier_backbone.decoding.targets import Targets, ancestry
from peltier_backbone.text.packing import Encoded
from torch import Tensor

from tests.support.decoder import decode

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


# Strings with common beginnings, one of them the beginning of others; as a tree and as chains.
STRINGS = [(0, 9, 12, 4), (0, 9, 12), (0, 9, 20, 21, 22, 23, 24), (0, 30), (0, 31, 30)]
TREE = (0, 9, 12, 4, 20, 21, 22, 23, 24, 30, 31, 30)
PARENTS = (-1, 0, 1, 2, 1, 4, 5, 6, 7, 0, 0, 10)
NODES = [(0, 1, 2, 3), (0, 1, 2), (0, 1, 4, 5, 6, 7, 8), (0, 9), (0, 10, 11)]
ROWS = [Encoded((5, 6, 7), (0, 0, 0)), Encoded((8,) * 40, (0,) * 40), Encoded((11,), (0,))]


@torch.inference_mode()
def _logits(
    backbone: Backbone, rows: list[Encoded], ids: list[tuple[int, ...]], parents: list[tuple[int, ...]] | None
) -> list[Tensor]:
    packed, model = backbone.pack(rows), backbone.t5
    targets = Targets.create(ids, parents, backbone.device)
    hidden = decode(backbone, targets, model.project_kv(packed, backbone.encode(packed)))
    return list(model.logits(hidden).split(targets.lengths))


@pytest.mark.parametrize("name", ["t5", "t5_gated"])
def test_a_tree_scores_strings_as_chains_do(name: str, request: pytest.FixtureRequest):
    """Every node of every row has the logits of its own string, beside rows of other trees and lengths."""
    backbone = request.getfixturevalue(name)
    trees, parents = [TREE, (0, 40, 41), TREE], [PARENTS, (-1, 0, 1), PARENTS]
    found = _logits(backbone, ROWS, trees, parents)
    for row in (0, 2):
        for string, nodes in zip(STRINGS, NODES, strict=True):
            (alone,) = _logits(backbone, [ROWS[row]], [string], None)
            torch.testing.assert_close(found[row][list(nodes)], alone, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found[1], _logits(backbone, [ROWS[1]], [(0, 40, 41)], None)[0], atol=1e-5, rtol=1e-5)


def test_a_chain_is_a_tree_without_branches(t5: Backbone):
    """Targets without parents are rows of single strings."""
    chain = (0, 9, 12, 4, 17)
    (one,), (other,) = (_logits(t5, ROWS[:1], [chain], parents) for parents in (None, [(-1, 0, 1, 2, 3)]))
    torch.testing.assert_close(one, other)


def test_several_first_nodes_do_not_see_each_other(t5: Backbone):
    """A row of separate chains is a tree too: each has positions of its own."""
    (found,) = _logits(t5, ROWS[:1], [(0, 9, 0, 30)], [(-1, 0, -1, 2)])
    for nodes, string in (((0, 1), (0, 9)), ((2, 3), (0, 30))):
        torch.testing.assert_close(found[list(nodes)], _logits(t5, ROWS[:1], [string], None)[0], atol=1e-5, rtol=1e-5)
