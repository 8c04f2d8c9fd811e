"""Attention of packed rows against a plain reference, row by row."""

import pytest
import torch
from peltier_backbone.attention import ragged_attention
from peltier_backbone.attention.ragged_attention import RaggedAttention
from peltier_backbone.attention.view import Attended
from torch import Tensor

HEADS, SIZE = 3, 5
WIDTH = HEADS * SIZE
LENGTHS = [((1,), (4,)), ((3, 3), (3, 3)), ((2, 7, 1), (5, 5, 5)), ((4, 4), (1, 9)), ((1, 6, 2), (8, 3, 30))]
KINDS = ["none", "shared", "own"]


def _draw(lengths: tuple[int, ...], keys: tuple[int, ...], kind: str) -> tuple[Tensor, Tensor, list[Tensor] | None]:
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(sum(lengths), WIDTH, generator=generator)
    key_value = torch.randn(sum(keys), 2 * WIDTH, generator=generator)
    if kind == "none":
        return query, key_value, None
    if kind == "shared":
        return query, key_value, [torch.randn(HEADS, max(lengths), max(keys), generator=generator)] * len(lengths)
    biases = [torch.randn(HEADS, n, m, generator=generator) for n, m in zip(lengths, keys, strict=True)]
    return query, key_value, biases


def _plain(query: Tensor, key_value: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """One row's unscaled attention, written out, and the log of the sum of its exponentiated logits."""
    queries = query.view(len(query), HEADS, SIZE).transpose(0, 1)
    keys, values = key_value.view(len(key_value), 2, HEADS, SIZE).permute(1, 2, 0, 3)
    logits = queries @ keys.transpose(1, 2)
    if bias is not None:
        logits = logits + bias[:, : len(query), : len(key_value)]
    weights = logits.exp() / logits.exp().sum(-1, keepdim=True)
    return (weights @ values).transpose(0, 1).reshape(len(query), WIDTH), logits.exp().sum(-1).log().t()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("waste", [-1e9, 1e9], ids=["by-row", "padded"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_each_row_sees_its_own_keys(lengths, kind, waste, training, monkeypatch):
    """Row by row or side by side, with and without gradients: contexts and totals are those of each row alone."""
    monkeypatch.setattr(ragged_attention, "_MAX_WASTED_LOGITS", waste)
    queries, keys = lengths
    query, key_value, biases = _draw(queries, keys, kind)
    attention = RaggedAttention(HEADS, queries, keys, query, biases)
    found = attention.attend(query.requires_grad_(training), key_value, with_logsumexp=True)
    assert found.logsumexp is not None
    rows = zip(query.split(queries), key_value.split(keys), biases or [None] * len(queries), strict=True)
    contexts, totals = zip(*(_plain(*row) for row in rows), strict=True)
    torch.testing.assert_close(found.context, torch.cat(contexts))
    torch.testing.assert_close(found.logsumexp, torch.cat(totals))


def test_totals_are_only_made_where_asked_for():
    """Rows without a prefix need none."""
    query, key_value, _ = _draw((2,), (3,), "none")
    assert RaggedAttention(HEADS, (2,), (3,), query).attend(query, key_value).logsumexp is None


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_each_row(kind: str):
    """The backward of a padded view is exact, and no pad brings a NaN into it."""
    queries, keys = (3, 1, 4), (2, 6, 1)
    query, key_value, biases = _draw(queries, keys, kind)
    inputs = (query.requires_grad_(), key_value.requires_grad_())

    def gradients(found: Attended) -> tuple[Tensor, ...]:
        assert found.logsumexp is not None
        loss = (found.context * torch.linspace(-1, 1, WIDTH)).sum() + (found.logsumexp * torch.arange(HEADS)).sum()
        return torch.autograd.grad(loss, inputs)

    rows = zip(query.split(queries), key_value.split(keys), biases or [None] * len(queries), strict=True)
    contexts, totals = zip(*(_plain(*row) for row in rows), strict=True)
    expected = gradients(Attended(torch.cat(contexts), torch.cat(totals)))
    found = RaggedAttention(HEADS, queries, keys, query, biases).attend(*inputs, with_logsumexp=True)
    for one, other in zip(gradients(found), expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
