"""Flash attention over packed rows on a GPU: no pad exists there either.

It takes no bias and no prefix, so BERT's rows without one go this way; rows with a prefix, or with pads of their own,
and T5, whose bias is relative, keep the padded view. Never run on a GPU yet.
"""

from collections.abc import Callable
from functools import cache, cached_property
from typing import cast

import torch
from torch import Tensor

from peltier_backbone import attention
from peltier_backbone.attention import Prefix, Span
from peltier_backbone.native.program import PlacedPrefixes

# What flash attention 2 multiplies: half precision, on Ampere and later.
_DTYPES = (torch.bfloat16, torch.float16)
_CAPABILITY = (8, 0)
_MAX_HEAD_SIZE = 256


def fits(device: torch.device, dtype: torch.dtype, head_size: int) -> bool:
    """Whether rows may attend without pads here."""
    if device.type != "cuda" or dtype not in _DTYPES or head_size % 8 or head_size > _MAX_HEAD_SIZE:
        return False
    return torch.cuda.get_device_capability(device) >= _CAPABILITY


def kernel_name(device: torch.device, dtype: torch.dtype, head_size: int) -> str:
    """What `/info` shows."""
    return "varlen-flash" if fits(device, dtype, head_size) else attention.kernel_name(device)


def choose_span(device: torch.device, dtype: torch.dtype, head_size: int) -> type[Span]:
    """The spans of a backbone that computes in `dtype` on `device`."""
    return VarlenSpan if fits(device, dtype, head_size) else Span


def attend(qkv: Tensor, starts: Tensor, longest: int, num_heads: int) -> Tensor:
    """[tokens, 3 * hidden] -> context [tokens, hidden], row r being tokens `starts[r]..starts[r + 1]` (int32), at most
    `longest`. Rows may be empty; what tokens of no row get is undefined."""
    query, key, value = qkv.view(len(qkv), 3, num_heads, -1).unbind(1)
    return _varlen_attn()(query, key, value, starts, starts, longest, longest).flatten(1)


class VarlenSpan(Span):
    """A span whose rows attend in one call, each to itself. With as many heads of keys as of queries flash attention 2
    splits no row, so that what a row gets does not depend on its neighbours."""

    def attend(self, qkv: Tensor, prefix: Prefix | PlacedPrefixes | None) -> Tensor:
        """As `Span.attend`."""
        if qkv.requires_grad or prefix is not None or self._seen != self._lengths:
            return super().attend(qkv, prefix)
        return attend(qkv, self._starts, max(self._lengths), self._num_heads)

    @cached_property
    def _starts(self) -> Tensor:
        """Where rows begin, and the end of the last, as the kernel wants it."""
        lengths = torch.tensor((0, *self._lengths), dtype=torch.int32)
        return lengths.cumsum(0, dtype=torch.int32).to(self._device)


@cache
def _varlen_attn() -> Callable[..., Tensor]:
    """torch's function; its module takes a second to import, which only a GPU is worth."""
    from torch.nn.attention.varlen import varlen_attn

    return cast(Callable[..., Tensor], varlen_attn)  # a pair only where more is asked for
