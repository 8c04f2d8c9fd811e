"""Label strings as one tree: every string's likelihood, common beginnings computed once."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_adapters.artifact.label_tree import LabelTree, create_tree
from torch import Tensor

START, END, VOCABULARY = 0, 1, 9
LABELS = st.lists(
    st.lists(st.integers(2, VOCABULARY - 1), min_size=1, max_size=5).map(tuple), min_size=1, max_size=8, unique=True
)


def _path(tree: LabelTree, node: int) -> tuple[int, ...]:
    """Tokens from the root to `node`, the start left out."""
    tokens: list[int] = []
    while tree.parents[node] >= 0:
        tokens.insert(0, tree.ids[node])
        node = tree.parents[node]
    return tuple(tokens)


def _table(tree: LabelTree) -> Tensor:
    """Random logits that depend on a node's path alone, as a decoder's do."""
    rows = []
    for node in range(len(tree.ids)):
        seed = hash(_path(tree, node)) % 2**31
        rows.append(torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(seed)))
    return torch.stack(rows)


@given(LABELS)
def test_a_tree_scores_each_label_as_its_own_chain(labels: list[tuple[int, ...]]):
    """The log-likelihood of a label does not depend on which others are scored with it."""
    tree = create_tree(START, END, labels)
    together = tree.score(_table(tree))
    for number, label in enumerate(labels):
        alone = create_tree(START, END, [label])
        assert torch.allclose(together[number], alone.score(_table(alone))[0], atol=1e-5)


@given(LABELS)
def test_a_beginning_that_labels_share_is_one_node(labels: list[tuple[int, ...]]):
    """There are as many nodes as distinct prefixes, and each follows its parent."""
    tree = create_tree(START, END, labels)
    beginnings = {label[:length] for label in labels for length in range(len(label) + 1)}
    assert {_path(tree, node) for node in range(len(tree.ids))} == beginnings
    assert len(tree.ids) == len(beginnings)
    assert all(parent < node for node, parent in enumerate(tree.parents))


def test_a_score_is_the_sum_of_the_steps_with_the_end():
    """Hand-checkable: uniform logits over 9 tokens, a label of two tokens and its end."""
    tree = create_tree(START, END, [(5, 6)])
    assert torch.allclose(tree.score(torch.zeros(3, VOCABULARY)), torch.tensor([-3 * torch.log(torch.tensor(9.0))]))


def test_a_text_is_scored_by_its_mean():
    """So that the tolerance of a golden text does not grow with its length."""
    tree = create_tree(START, END, [(5, 6)], means=True)
    assert torch.allclose(tree.score(torch.zeros(3, VOCABULARY)), -torch.log(torch.tensor([9.0])))
