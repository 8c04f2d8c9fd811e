"""Flash attention over packed rows: when it is chosen, and its inputs. Running it needs a GPU."""

from itertools import pairwise

import pytest
import torch
from peltier_backbone import varlen
from peltier_backbone.attention import Prefix, Span
from peltier_backbone.load import Backbone
from peltier_backbone.packing import Encoded, Packed
from peltier_backbone.varlen import Rows, VarlenSpan, choose_span, fits, kernel_name
from torch import Tensor
from torch.nn import functional as F

HEADS, SIZE = 3, 8
LENGTHS = (4, 2, 3, 5)


def _packed(backbone: Backbone, *, pads: int = 0) -> Packed:
    return backbone.pack([Encoded((1,) * length, (0,) * length, pads=pads) for length in LENGTHS])


def _qkv() -> Tensor:
    return torch.randn(sum(LENGTHS), 3 * HEADS * SIZE, generator=torch.Generator().manual_seed(0))


def _by_row(query: Tensor, key: Tensor, value: Tensor, queries: Rows, keys: Rows) -> Tensor:
    """What flash attention computes: [tokens, heads, head size]."""
    context = []
    for rows, packed in ((queries, query), (keys, key)):
        bounds = rows.starts.tolist()
        assert (rows.starts.dtype, bounds[0], bounds[-1]) == (torch.int32, 0, len(packed))
        assert rows.longest == max(last - first for first, last in pairwise(bounds))
    for own, others in zip(pairwise(queries.starts.tolist()), pairwise(keys.starts.tolist()), strict=True):
        row = (one[slice(*place)].transpose(0, 1) for one, place in ((query, own), (key, others), (value, others)))
        context.append(F.scaled_dot_product_attention(*row).transpose(0, 1))
    return torch.cat(context)


def test_the_cpu_never_chooses_it(bert: Backbone):
    """Neither in a dtype that it could multiply, nor in what `/info` shows."""
    assert choose_span(torch.device("cpu"), torch.bfloat16, SIZE) is Span
    assert "varlen" not in bert.kernels["attention"]


@pytest.mark.parametrize(
    ("dtype", "head_size", "capability", "chosen"),
    [
        (torch.bfloat16, 64, (9, 0), True),
        (torch.bfloat16, 32, (8, 0), True),
        (torch.float32, 64, (9, 0), False),
        (torch.bfloat16, 12, (9, 0), False),
        (torch.bfloat16, 512, (9, 0), False),
        (torch.bfloat16, 64, (7, 5), False),
    ],
)
def test_a_gpu_chooses_it_where_it_can_multiply(
    dtype: torch.dtype, head_size: int, capability: tuple[int, int], chosen: bool, monkeypatch: pytest.MonkeyPatch
):
    """Half precision, heads of eights, Ampere or later; the name says what was chosen."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    cuda = torch.device("cuda")
    assert fits(cuda, dtype, head_size) is chosen
    assert kernel_name(cuda, dtype, head_size) == ("varlen-flash" if chosen else "sdpa-padded")


@pytest.mark.parametrize("pads", [0, 1])
@pytest.mark.parametrize("prefix_len", [None, 2])
def test_rows_are_handed_over_back_to_back(
    pads: int, prefix_len: int | None, bert: Backbone, monkeypatch: pytest.MonkeyPatch
):
    """Given the function that torch describes, a span attends as the padded one does: to prefixes, and not to pads."""
    monkeypatch.setattr(varlen, "flash", _by_row)
    packed, qkv = _packed(bert, pads=pads), _qkv()
    generator = torch.Generator().manual_seed(1)
    prefix = None if prefix_len is None else Prefix(*torch.randn(2, 3, HEADS, prefix_len, SIZE, generator=generator))
    span = VarlenSpan(packed, 1, 4, HEADS)
    found, expected = (own.attend(qkv[span.tokens], prefix) for own in (span, Span(packed, 1, 4, HEADS)))
    torch.testing.assert_close(found, expected)


def test_training_keeps_the_padded_view(bert: Backbone, monkeypatch: pytest.MonkeyPatch):
    """Flash attention records nothing for a backward pass here."""
    monkeypatch.setattr(varlen, "flash", lambda *arguments: pytest.fail("flash attention was called"))
    packed, qkv = _packed(bert), _qkv().requires_grad_()
    found = VarlenSpan(packed, 0, 4, HEADS).attend(qkv, None)
    torch.testing.assert_close(found, Span(packed, 0, 4, HEADS).attend(qkv, None))


def test_torch_has_the_function_that_is_called():
    """It takes these arguments and gives a context of the queries' shape; on the meta device nothing is computed."""
    query, key = (torch.empty(tokens, HEADS, SIZE, dtype=torch.bfloat16, device="meta") for tokens in (14, 22))
    starts = torch.empty(5, dtype=torch.int32, device="meta")
    context = varlen.flash(query, key, key, Rows(starts, 5), Rows(starts, 7))
    assert (context.shape, context.dtype, context.is_meta) == (query.shape, query.dtype, True)
