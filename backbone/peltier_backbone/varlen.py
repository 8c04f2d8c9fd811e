"""Flash attention over packed rows on a GPU, without pads.

The kernel takes no bias and no prefix, so only BERT's rows without a prefix use it. Rows with a prefix or with pads,
and T5, which has a relative bias, use the padded view. This module has not run on a GPU yet.
"""

from collections.abc import Callable
from functools import cache, cached_property
from typing import cast

import torch
from torch import Tensor

from peltier_backbone import attention
from peltier_backbone.attention import Prefix, Span
from peltier_backbone.native.program import PlacedPrefixes

# The dtypes of flash attention 2: half precision, on Ampere and later.
_DTYPES = (torch.bfloat16, torch.float16)
_CAPABILITY = (8, 0)
_MAX_HEAD_SIZE = 256


def fits(device: torch.device, dtype: torch.dtype, head_size: int) -> bool:
    """Whether flash attention supports this device, dtype and head size."""
    if device.type != "cuda" or dtype not in _DTYPES or head_size % 8 or head_size > _MAX_HEAD_SIZE:
        return False
    return torch.cuda.get_device_capability(device) >= _CAPABILITY


def kernel_name(device: torch.device, dtype: torch.dtype, head_size: int) -> str:
    """The name of the attention kernel, as `/info` shows it."""
    return "varlen-flash" if fits(device, dtype, head_size) else attention.kernel_name(device)


def choose_span(device: torch.device, dtype: torch.dtype, head_size: int) -> type[Span]:
    """The span class of a backbone that computes in `dtype` on `device`."""
    return VarlenSpan if fits(device, dtype, head_size) else Span


def attend(qkv: Tensor, starts: Tensor, longest: int, num_heads: int) -> Tensor:
    """The context [tokens, hidden] of `qkv` [tokens, 3 * hidden]. Row r is the tokens `starts[r]..starts[r + 1]`
    (int32), at most `longest`. Rows may be empty; the result of tokens outside all rows is undefined."""
    query, key, value = qkv.view(len(qkv), 3, num_heads, -1).unbind(1)
    return _varlen_attn()(query, key, value, starts, starts, longest, longest).flatten(1)


class VarlenSpan(Span):
    """A span whose rows attend in one call, each to its own tokens. If keys and queries have equally many heads, flash
    attention 2 splits no row, so the result of a row does not depend on its neighbours."""

    def attend(self, qkv: Tensor, prefix: Prefix | PlacedPrefixes | None) -> Tensor:
        """See `Span.attend`."""
        if qkv.requires_grad or prefix is not None or self._seen != self._lengths:
            return super().attend(qkv, prefix)
        return attend(qkv, self._starts, max(self._lengths), self._num_heads)

    @cached_property
    def _starts(self) -> Tensor:
        """The first token of each row and the end of the last row, int32 as the kernel requires."""
        lengths = torch.tensor((0, *self._lengths), dtype=torch.int32)
        return lengths.cumsum(0, dtype=torch.int32).to(self._device)


@cache
def _varlen_attn() -> Callable[..., Tensor]:
    """torch's function. Its module takes a second to import, so it is imported only when a GPU uses it."""
    from torch.nn.attention.varlen import varlen_attn

    return cast(Callable[..., Tensor], varlen_attn)  # it returns a pair only if more outputs are requested
