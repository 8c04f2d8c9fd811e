"""Flash attention over packed rows on a GPU, without pads.

The kernel takes no bias, so T5, which has a relative bias, does not use it. This module has not run on a GPU yet.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from peltier_backbone import attention
from peltier_backbone.attention import Prefix, RoundedSpan, Span
from peltier_backbone.native.placed_rows import RowKernels
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


def choose_span(device: torch.device, dtype: torch.dtype, head_size: int, *, coarse: bool = False) -> type[Span]:
    """The span class of a backbone that computes in `dtype` on `device`, whose linear maps may be `coarse`."""
    if fits(device, dtype, head_size):
        return VarlenSpan
    return RoundedSpan if coarse else Span


class Rows(NamedTuple):
    """Row r is `starts[r]..starts[r + 1]` of packed queries or keys (int32), at most `longest`. Rows may be empty."""

    starts: Tensor
    longest: int


def attend(qkv: Tensor, starts: Tensor, longest: int, num_heads: int) -> Tensor:
    """The context [tokens, hidden] of `qkv` [tokens, 3 * hidden], whose rows attend to themselves. The result of tokens
    outside all rows is undefined."""
    query, key, value = qkv.view(len(qkv), 3, num_heads, -1).unbind(1)
    rows = Rows(starts, longest)
    return flash(query, key, value, rows, rows).flatten(1)


def flash(query: Tensor, key: Tensor, value: Tensor, queries: Rows, keys: Rows) -> Tensor:
    """The context [tokens, heads, head size] of `query`, whose rows attend to the same rows of `key` and `value`."""
    # torch.nn.attention.varlen makes this call inside a custom operator, which costs the host more than this call.
    attend = torch.ops.aten._flash_attention_forward
    found: tuple[Tensor, ...] = attend(
        query, key, value, queries.starts, keys.starts, queries.longest, keys.longest, 0.0, False, False
    )
    return found[0]


class VarlenSpan(Span):
    """A span whose rows attend in one call, each to its prefix and to its own tokens without pads. If keys and queries
    have equally many heads, flash attention 2 splits no row, so the result of a row does not depend on its
    neighbours."""

    def attend(self, qkv: Tensor, prefix: Prefix | PlacedPrefixes | RowKernels | None) -> Tensor:
        """See `Span.attend`."""
        if qkv.requires_grad or isinstance(prefix, RowKernels):
            return super().attend(qkv, prefix)
        assert not isinstance(prefix, PlacedPrefixes), "only the native kernels read prefixes where they lie"
        if prefix is None and self._seen == self._lengths:
            return attend(qkv, self._queries.starts, self._queries.longest, self._num_heads)
        query, key, value = qkv.view(len(qkv), 3, self._num_heads, -1).unbind(1)
        keys, places = self._place_keys(0 if prefix is None else prefix.keys.shape[2])
        if prefix is not None:
            key, value = (
                torch.cat((extra.transpose(1, 2).flatten(0, 1), own))
                for extra, own in zip(prefix, (key, value), strict=True)
            )
        key, value = (own.index_select(0, places) for own in (key, value))
        return flash(query, key, value, self._queries, keys).flatten(1)

    @cached_property
    def _queries(self) -> Rows:
        return Rows(_starts(self._lengths).to(self._device), max(self._lengths))

    @cached_property
    def _known_keys(self) -> dict[int, tuple[Rows, Tensor]]:
        return {}

    def _place_keys(self, prefix_len: int) -> tuple[Rows, Tensor]:
        """The rows of keys: each row's prefix, and then the tokens that it sees. The tensor says where these keys are
        in the prefixes of all rows followed by all tokens."""
        if prefix_len not in self._known_keys:
            lengths = [prefix_len + seen for seen in self._seen]
            places, starts = list[int](), accumulate(self._lengths, initial=prefix_len * len(lengths))
            for row, (start, seen) in enumerate(zip(starts, self._seen, strict=False)):
                places += [*range(row * prefix_len, (row + 1) * prefix_len), *range(start, start + seen)]
            # One copy to the device for both.
            tables = torch.cat((_starts(lengths), torch.tensor(places, dtype=torch.int32))).to(self._device)
            self._known_keys[prefix_len] = Rows(tables[: len(lengths) + 1], max(lengths)), tables[len(lengths) + 1 :]
        return self._known_keys[prefix_len]


def _starts(lengths: Sequence[int]) -> Tensor:
    return torch.tensor([*accumulate(lengths, initial=0)], dtype=torch.int32)
