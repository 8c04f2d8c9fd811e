"""Flash attention over packed rows: when it is chosen, and its inputs. Running it needs a GPU."""

from itertools import pairwise

import pytest
import torch
from peltier_backbone import varlen
from peltier_backbone.attention import Prefix, Span
from peltier_backbone.load import Backbone
from peltier_backbone.packing import Encoded, Packed
from peltier_backbone.varlen import VarlenSpan, choose_span, fits, kernel_name
from torch import Tensor
from torch.nn import functional as F

HEADS, SIZE = 3, 8
LENGTHS = (4, 2, 3, 5)


def _packed(backbone: Backbone, *, pads: int = 0) -> Packed:
    return backbone.pack([Encoded((1,) * length, (0,) * length, pads=pads) for length in LENGTHS])


def _qkv() -> Tensor:
    return torch.randn(sum(LENGTHS), 3 * HEADS * SIZE, generator=torch.Generator().manual_seed(0))


def _by_row(
    query: Tensor, key: Tensor, value: Tensor, starts: Tensor, key_starts: Tensor, longest: int, longest_key: int
) -> Tensor:
    """What `torch.nn.attention.varlen.varlen_attn` says it computes: [tokens, heads, head size]."""
    assert starts.dtype == key_starts.dtype == torch.int32
    bounds = list(pairwise(starts.tolist()))
    assert longest == longest_key == max(last - first for first, last in bounds)
    rows = [[x[first:last].transpose(0, 1) for x in (query, key, value)] for first, last in bounds]
    return torch.cat([F.scaled_dot_product_attention(*row).transpose(0, 1) for row in rows])


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


def test_rows_are_handed_over_back_to_back(bert: Backbone, monkeypatch: pytest.MonkeyPatch):
    """Given the function that torch describes, a span attends as the padded one does."""
    monkeypatch.setattr(varlen, "_varlen_attn", lambda: _by_row)
    packed, qkv = _packed(bert), _qkv()
    span = VarlenSpan(packed, 1, 4, HEADS)
    found = span.attend(qkv[span.tokens], None)
    torch.testing.assert_close(found, Span(packed, 1, 4, HEADS).attend(qkv[span.tokens], None))


@pytest.mark.parametrize("reason", ["prefix", "pads", "training"])
def test_what_it_cannot_do_keeps_the_padded_view(reason: str, bert: Backbone, monkeypatch: pytest.MonkeyPatch):
    """Prefixes, rows with pads of their own and training never reach it."""
    monkeypatch.setattr(varlen, "_varlen_attn", lambda: pytest.fail("flash attention was called"))
    packed, qkv = _packed(bert, pads=1 if reason == "pads" else 0), _qkv().requires_grad_(reason == "training")
    drawn = torch.randn(2, len(LENGTHS), HEADS, 2, SIZE, generator=torch.Generator().manual_seed(1))
    prefix = Prefix(*drawn) if reason == "prefix" else None
    found = VarlenSpan(packed, 0, 4, HEADS).attend(qkv, prefix)
    torch.testing.assert_close(found, Span(packed, 0, 4, HEADS).attend(qkv, prefix))
