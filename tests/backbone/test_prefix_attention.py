"""Prefixes merged into attention afterwards give the same result as prefixes in front of the keys."""

import pytest
import torch
from peltier_backbone.adaptation import NoAdaptation
from peltier_backbone.attention import Prefix
from peltier_backbone.prefix_attention import PrefixAttention
from peltier_backbone.products import Attended, attend
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


def _row(query: Tensor, keys: Tensor, values: Tensor, *, total: bool) -> Attended:
    """One row's attention over its own tokens: context [tokens, width], total [tokens, heads]."""
    heads = (x.view(len(x), HEADS, -1).transpose(0, 1) for x in (query, keys, values))
    context, totals = attend(*heads, None, total=total)
    return Attended(context.transpose(0, 1).reshape(len(query), -1), None if totals is None else totals.t())


@pytest.mark.parametrize("lengths", [(1, 1, 1, 1, 1), (3, 3, 3, 3, 3), (2, 4, 1, 3, 3)], ids=str)
def test_a_prefix_counts_as_keys_in_front(lengths: tuple[int, ...]):
    """Spans of other prefix lengths and without one, rows of one length or of many: each row sees its own prefix."""
    spans = [(2, _prefix(2, 3)), (1, None), (2, _prefix(2, 1))]
    prefixes = [*zip(*spans[0][1], strict=True), None, *zip(*spans[2][1], strict=True)]
    query, keys, values = (_draw(sum(lengths), WIDTH, seed=seed) for seed in range(3))
    rows = list(zip(*(x.split(lengths) for x in (query, keys, values)), strict=True))
    adaptation = Prefixes(spans)

    def without(total: bool) -> Attended:
        found = [_row(*row, total=total) for row in rows]
        return Attended(torch.cat([one.context for one in found]), torch.cat([one.total for one in found]))

    found = PrefixAttention(adaptation, lengths, HEADS).attend(7, query, query, without).split(lengths)
    for one, (own, key, value), prefix in zip(found, rows, prefixes, strict=True):
        if prefix is not None:
            key, value = (
                torch.cat((part.transpose(0, 1).reshape(-1, WIDTH), x))
                for part, x in zip(prefix, (key, value), strict=True)
            )
        torch.testing.assert_close(one, _row(own, key, value, total=False).context)
    tokens = (sum(lengths[:2]), lengths[2], sum(lengths[3:]))
    assert adaptation.asked == [(7, span, num) for span, num in enumerate(tokens)]


def test_without_a_prefix_nothing_is_paid():
    """No totals are computed, and the context is untouched."""
    context = _draw(4, WIDTH)

    def without(total: bool) -> Attended:
        assert not total
        return Attended(context, None)

    assert PrefixAttention(NoAdaptation(), (1, 3), HEADS).attend(0, context, context, without) is context


def test_a_huge_prefix_logit_overflows_nothing():
    """Logits of any size are joined through their maximum."""
    prefix = Prefix(torch.full((1, HEADS, 1, SIZE), 1e4), torch.ones(1, HEADS, 1, SIZE))
    query, context = torch.ones(1, WIDTH), torch.zeros(1, WIDTH)
    attended = Attended(context, torch.full((1, HEADS), 50.0))
    found = PrefixAttention(Prefixes([(1, prefix)]), (1,), HEADS).attend(0, query, query, lambda total: attended)
    assert torch.equal(found, torch.ones(1, WIDTH))
