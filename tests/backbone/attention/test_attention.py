"""Attention spans against a plain reference, row by row."""

from collections.abc import Iterator

import pytest
import torch
from peltier_backbone.attention.adaptation import Prefix
from peltier_backbone.attention.attention import Span
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.packing import Encoded, Packed
from torch import Tensor

HEADS, SIZE = 3, 5
HIDDEN = HEADS * SIZE


@pytest.fixture(params=["serving", "training"])
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    """Without gradients and with them."""
    with torch.inference_mode(request.param == "serving"):
        yield request.param


def _packed(backbone: Backbone, lengths: tuple[int, ...]) -> Packed:
    return backbone.pack([Encoded((1,) * length, (0,) * length) for length in lengths])


def _plain(qkv: Tensor, prefix: tuple[Tensor, Tensor] | None) -> Tensor:
    """One row's softmax attention, written out; prefix keys and values are [heads, P, size]."""
    query, key, value = qkv.view(len(qkv), 3, HEADS, SIZE).permute(1, 2, 0, 3)
    if prefix is not None:
        key, value = torch.cat((prefix[0], key), 1), torch.cat((prefix[1], value), 1)
    weights = torch.softmax(query @ key.transpose(1, 2) / SIZE**0.5, -1)
    return (weights @ value).transpose(0, 1).reshape(len(qkv), HIDDEN)


@pytest.mark.parametrize("prefix_len", [0, 1, 4])
@pytest.mark.parametrize("lengths", [(1,), (3, 3), (40, 40), (1, 6, 2, 6), (9, 1), (17, 64, 65)], ids=str)
def test_a_span_attends_within_its_rows(lengths: tuple[int, ...], prefix_len: int, mode: str, bert: Backbone):
    """Each row sees its own tokens and its own prefix, never a neighbour's or a pad, whichever kernel runs."""
    generator = torch.Generator().manual_seed(0)
    qkv = torch.randn(sum(lengths), 3 * HIDDEN, generator=generator).requires_grad_(mode == "training")
    drawn = torch.randn(2, len(lengths), HEADS, prefix_len, SIZE, generator=generator)
    prefix = Prefix(drawn[0], drawn[1]) if prefix_len else None
    found = Span(_packed(bert, lengths), (0, len(lengths)), HEADS).attend(qkv, prefix)
    for row, (one, piece) in enumerate(zip(found.split(lengths), qkv.split(lengths), strict=True)):
        torch.testing.assert_close(one, _plain(piece, (drawn[0, row], drawn[1, row]) if prefix else None))


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("lengths", [(3, 3), (40,), (5, 30, 70)], ids=str)
def test_bfloat16_is_rounded_once(lengths: tuple[int, ...], bert: Backbone):
    """What bfloat16 queries, keys and values attend to is the exact context, to the rounding of the answer alone."""
    generator = torch.Generator().manual_seed(5)
    qkv = torch.randn(sum(lengths), 3 * HIDDEN, generator=generator).bfloat16()
    drawn = torch.randn(2, len(lengths), HEADS, 2, SIZE, generator=generator).bfloat16()
    found = Span(_packed(bert, lengths), (0, len(lengths)), HEADS).attend(qkv, Prefix(drawn[0], drawn[1]))
    assert found.dtype == torch.bfloat16
    for row, (one, piece) in enumerate(zip(found.split(lengths), qkv.split(lengths), strict=True)):
        exact = _plain(piece.float(), (drawn[0, row].float(), drawn[1, row].float()))
        torch.testing.assert_close(one.float(), exact, atol=1e-5, rtol=2**-8)


def test_an_inner_span_covers_its_tokens(bert: Backbone):
    """A span in the middle of a batch reads only its slice of the packed tokens."""
    packed = _packed(bert, (4, 2, 3, 5))
    span = Span(packed, (1, 3), HEADS)
    assert (span.tokens.start, span.tokens.stop) == (4, 9)
    qkv = torch.randn(14, 3 * HIDDEN, generator=torch.Generator().manual_seed(1))
    found = span.attend(qkv[span.tokens], None)
    expected = torch.cat([_plain(piece, None) for piece in qkv[4:9].split((2, 3))])
    torch.testing.assert_close(found, expected)


def test_spans_split_a_batch_without_changing_it(bert: Backbone):
    """How rows are grouped into spans does not change what they attend to."""
    lengths = (4, 2, 3, 5, 2)
    packed = _packed(bert, lengths)
    qkv = torch.randn(sum(lengths), 3 * HIDDEN, generator=torch.Generator().manual_seed(2))
    whole = Span(packed, (0, 5), HEADS).attend(qkv, None)
    spans = [Span(packed, rows, HEADS) for rows in ((0, 1), (1, 4), (4, 5))]
    torch.testing.assert_close(torch.cat([span.attend(qkv[span.tokens], None) for span in spans]), whole)


def test_gradients_pass_the_padded_view(bert: Backbone):
    """The gradient of a ragged span is the gradient of each row's own attention."""
    lengths = (4, 1, 7)
    qkv = torch.randn(12, 3 * HIDDEN, generator=torch.Generator().manual_seed(3)).requires_grad_()
    wanted = torch.randn(12, HIDDEN, generator=torch.Generator().manual_seed(4))
    found = Span(_packed(bert, lengths), (0, 3), HEADS).attend(qkv, None)
    plain = torch.cat([_plain(piece, None) for piece in qkv.split(lengths)])
    gradients = [torch.autograd.grad((one * wanted).sum(), qkv)[0] for one in (found, plain)]
    torch.testing.assert_close(*gradients)
