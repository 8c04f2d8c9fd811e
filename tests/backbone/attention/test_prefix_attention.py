"""Prefixes merged into attention afterwards give the same result as prefixes in front of the keys."""

import pytest
import torch
from peltier_backbone.attention.adaptation import NoAdaptation, Prefix
from peltier_backbone.attention.view import Attended, PrefixAttention, attend
from torch import Tensor

HEADS, SIZE = 2, 4
WIDTH = HEADS * SIZE


class Prefixes(NoAdaptation):
    """A span for each entry: how many rows it has, and their prefix."""

    def __init__(self, spans: list[tuple[int, Prefix | None]]) -> None:
        self._spans, self.asked = spans, []

    def spans(self, num_rows: int) -> list[tuple[int, int]]:
        ends = torch.tensor([rows for rows, _ in self._spans]).cumsum(0).tolist()
        assert ends[-1] == num_rows
        return list(zip([0, *ends], ends, strict=False))

    def prefix(self, attention: int, span: int, x: Tensor) -> Prefix | None:
        self.asked.append((attention, span, len(x)))
        return self._spans[span][1]


def _draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _prefix(rows: int, length: int) -> Prefix:
    return Prefix(_draw(rows, HEADS, length, SIZE, seed=rows), _draw(rows, HEADS, length, SIZE, seed=rows + 50))


def _row(query: Tensor, keys: Tensor, values: Tensor, *, with_logsumexp: bool) -> Attended:
    """One row's attention over its own tokens: context [tokens, width], logsumexp [tokens, heads]."""
    heads = (x.view(len(x), HEADS, -1).transpose(0, 1) for x in (query, keys, values))
    context, logsumexp = attend(*heads, None, with_logsumexp=with_logsumexp)
    return Attended(context.transpose(0, 1).reshape(len(query), -1), None if logsumexp is None else logsumexp.t())


@pytest.mark.parametrize("lengths", [(1, 1, 1, 1, 1), (3, 3, 3, 3, 3), (2, 4, 1, 3, 3)], ids=str)
def test_a_prefix_counts_as_keys_in_front(lengths: tuple[int, ...]):
    """Spans of other prefix lengths and without one, rows of one length or of many: each row sees its own prefix."""
    spans = [(2, _prefix(2, 3)), (1, None), (2, _prefix(2, 1))]
    prefixes = [*zip(*spans[0][1], strict=True), None, *zip(*spans[2][1], strict=True)]
    query, keys, values = (_draw(sum(lengths), WIDTH, seed=seed) for seed in range(3))
    rows = list(zip(*(x.split(lengths) for x in (query, keys, values)), strict=True))
    adaptation = Prefixes(spans)

    alone = [_row(*row, with_logsumexp=True) for row in rows]
    attended = Attended(torch.cat([row.context for row in alone]), torch.cat([row.logsumexp for row in alone]))
    prefixed = PrefixAttention(adaptation, lengths, HEADS)
    found = prefixed.merge(query, attended, prefixed.find(7, query)).split(lengths)
    for context, (own, key, value), prefix in zip(found, rows, prefixes, strict=True):
        if prefix is not None:
            key, value = (
                torch.cat((part.transpose(0, 1).reshape(-1, WIDTH), x))
                for part, x in zip(prefix, (key, value), strict=True)
            )
        torch.testing.assert_close(context, _row(own, key, value, with_logsumexp=False).context)
    tokens = (sum(lengths[:2]), lengths[2], sum(lengths[3:]))
    assert adaptation.asked == [(7, span, num) for span, num in enumerate(tokens)]


def test_without_a_prefix_nothing_is_paid():
    """None is found, no logsumexp is needed, and the context is untouched."""
    context = _draw(4, WIDTH)
    prefixed = PrefixAttention(NoAdaptation(), (1, 3), HEADS)
    assert prefixed.find(0, context) is None
    assert prefixed.merge(context, Attended(context, None), None) is context


def test_a_huge_prefix_logit_overflows_nothing():
    """Logits of any size are joined through their maximum."""
    prefix = Prefix(torch.full((1, HEADS, 1, SIZE), 1e4), torch.ones(1, HEADS, 1, SIZE))
    query, context = torch.ones(1, WIDTH), torch.zeros(1, WIDTH)
    attended = Attended(context, torch.full((1, HEADS), 50.0))
    found = PrefixAttention(Prefixes([(1, prefix)]), (1,), HEADS).merge(query, attended, [prefix])
    assert torch.equal(found, torch.ones(1, WIDTH))
