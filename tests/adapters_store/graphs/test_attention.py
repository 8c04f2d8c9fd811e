"""Attention with start offsets on the device, compared with the backbone's attention with known lengths."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_adapters.graphs.attention import Attention
from peltier_backbone import varlen
from peltier_backbone.attention import Prefix, Span
from peltier_backbone.load import Backbone
from peltier_backbone.packing import Encoded
from torch import Tensor

LONGEST, NUM_TOKENS = 16, 64


def _starts(lengths: list[int], first: int, rows: int) -> Tensor:
    ends = torch.tensor([first, *lengths]).cumsum(0).tolist()
    return torch.tensor([*ends, *ends[-1:] * (rows - len(lengths))], dtype=torch.int32)


def _expected(backbone: Backbone, lengths: list[int], num_plain: int, qkv: Tensor, prefix: Prefix) -> Tensor:
    packed = backbone.pack([Encoded((5,) * length, (0,) * length) for length in lengths])
    spans = [(0, num_plain, None), (num_plain, len(lengths), prefix)]
    parts = []
    for first, last, own in spans:
        if first < last:
            span = Span(packed, first, last, backbone.config.num_heads)
            parts.append(span.attend(qkv[span.tokens], own))
    return torch.cat(parts)


def _prefix(backbone: Backbone, rows: int) -> Prefix:
    shape = (2, rows, backbone.config.num_heads, 3, backbone.config.head_size)
    return Prefix(*torch.randn(shape, generator=torch.Generator().manual_seed(1)))


def _qkv(backbone: Backbone) -> Tensor:
    drawn = torch.randn(NUM_TOKENS, 3 * backbone.config.hidden_size, generator=torch.Generator().manual_seed(2))
    return drawn.index_fill(0, torch.tensor([NUM_TOKENS - 1]), torch.nan)


@given(
    plain=st.lists(st.integers(1, LONGEST), max_size=2),
    prefixed=st.lists(st.integers(1, LONGEST), min_size=1, max_size=1),
)
@pytest.mark.parametrize("flash", [False, True])
def test_rows_attend_to_themselves_and_their_prefixes(
    flash: bool, plain: list[int], prefixed: list[int], bert: Backbone
):
    """For any number of rows, with empty rows and NaN pad tokens after them."""
    lengths, rows = plain + prefixed, 2
    qkv, prefix = _qkv(bert), _prefix(bert, rows)
    own = Prefix(*(part[: len(prefixed)] for part in prefix))
    expected = _expected(bert, lengths, len(plain), qkv[: sum(lengths)], own)
    spans = [(_starts(prefixed, sum(plain), rows), lambda layer, x: prefix)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(varlen, "fits", lambda device, dtype, head_size: flash)
        patch.setattr(varlen, "flash", _by_row)
        attention = Attention(bert, _starts(plain, 0, 4), LONGEST, NUM_TOKENS, spans)
        found = attention.attend(0, qkv, qkv)
    torch.testing.assert_close(found[: sum(lengths)], expected)


def _by_row(query: Tensor, key: Tensor, value: Tensor, rows: varlen.Rows, keys: varlen.Rows) -> Tensor:
    """What flash attention computes; tokens of no row get what is not even a number."""
    starts = rows.starts
    context = torch.full_like(query, torch.nan)
    attend: Callable[..., Tensor] = torch.nn.functional.scaled_dot_product_attention
    for first, last in zip(starts.tolist(), starts.tolist()[1:], strict=False):
        if first < last:
            heads = [one[first:last].transpose(0, 1) for one in (query, key, value)]
            context[first:last] = attend(*heads).transpose(0, 1)
    return context
