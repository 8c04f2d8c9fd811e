"""The self-attention of encoders over packed rows in torch. On the CPU rows attend one by one, without pads; on a GPU
and in training this module pads them. Rows with a window attend to near tokens block by block (`attend_near`).

A `Span` is a run of neighbouring rows that attend in one call. Rows with a prefix form their own spans, so that other
rows need no memory for the prefix.
"""

from collections.abc import Callable
from functools import cached_property, partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from peltier_backbone.attention.adaptation import Adaptation, Prefix
from peltier_backbone.attention.padding import Groups, Padding
from peltier_backbone.text.packing import Packed

# Up to this many tokens, one padded call for rows of equal length is faster on the CPU than one call for each row.
_MAX_PADDED_TOKENS = 16
# For these numbers of keys plain products are faster than the fused kernel on the CPU: by a quarter with 25 keys.
_UNFUSED_NUM_KEYS = range(17, 65)
# So many queries at a time: the work grows with the length of a row, not with its square.
_BLOCK = 256


class PositionScores(Protocol):
    """What the positions of tokens add to the scores of attention. A prefix has no position, and gets nothing."""

    @property
    def scale(self) -> float:
        """What products of queries and keys are multiplied by; what is added is scaled already."""

    def between(self, layer: int, query: Tensor, key: Tensor) -> Tensor:
        """What is added to the scores of consecutive tokens in `layer`, broadcast to [..., heads, queries, keys].
        Queries and keys are [..., heads, tokens, head size]; keys are those of the first tokens."""


class LayerScores(NamedTuple):
    """`PositionScores` in one layer."""

    scale: float
    between: Callable[[Tensor, Tensor], Tensor]


class Span:
    """The `rows` of a batch, from the first up to the one before the last. All layers share the values that depend only
    on the lengths. With a `window` a token attends to the tokens at most so far away and to the whole prefix; then rows
    have no pads."""

    def __init__(self, packed: Packed, rows: tuple[int, int], num_heads: int, window: int | None = None) -> None:
        first, last = rows
        self.tokens = slice(packed.starts[first], packed.starts[last])
        self._lengths, self._seen, self._num_heads = packed.lengths[first:last], packed.seen[first:last], num_heads
        self._device = packed.ids.device
        self._window = None if window is None or max(self._lengths) <= window + 1 else window
        assert self._window is None or self._seen == self._lengths, "a pad beyond the window would see no key"

    def attend(self, qkv: Tensor, prefix: Prefix | None, scores: LayerScores | None = None) -> Tensor:
        """[tokens of the span, 3 * hidden] -> context [tokens of the span, hidden]. With a window there are no `scores`
        of positions."""
        if qkv.device.type != "cpu":
            return self._padded(qkv, prefix, self._padding, scores)
        if qkv.requires_grad:
            return self._in_groups(qkv, prefix, scores)
        # Attention is slower in bfloat16 than in float32 on the CPU, at any length.
        exact = qkv.float()
        prefix = None if prefix is None else Prefix(prefix.keys.float(), prefix.values.float())
        if self._padding.uniform and self._padding.width <= _MAX_PADDED_TOKENS:
            return self._padded(exact, prefix, self._padding, scores).to(qkv.dtype)
        return self._by_row(exact, prefix, scores).to(qkv.dtype)

    @cached_property
    def _padding(self) -> Padding:
        return Padding(self._lengths, self._device, self._seen)

    def _by_row(self, qkv: Tensor, prefix: Prefix | None, scores: LayerScores | None) -> Tensor:
        heads = qkv.view(len(qkv), 3, self._num_heads, -1).permute(1, 2, 0, 3)  # [3, heads, tokens, head size]
        context = []
        for row, (own, seen) in enumerate(zip(torch.split(heads, list(self._lengths), 2), self._seen, strict=True)):
            query, key, value = own.unbind()
            if seen < query.shape[1]:
                key, value = key[:, :seen], value[:, :seen]
            front = None if prefix is None else (prefix.keys[row], prefix.values[row])
            if self._window is not None and query.shape[1] > self._window + 1:
                context.append(attend_near(query, key, value, front, self._window))
                continue
            added = None if scores is None else scores.between(query, key)
            if front is not None:
                key, value = torch.cat((front[0], key), 1), torch.cat((front[1], value), 1)
                added = None if added is None else F.pad(added, (front[0].shape[1], 0))
            context.append(_attend_row(query, key, value, added, scores and scores.scale))
        return torch.cat(context, 1).transpose(0, 1).flatten(1)

    def _in_groups(self, qkv: Tensor, prefix: Prefix | None, scores: LayerScores | None) -> Tensor:
        contexts = []
        for group in self._groups:
            own = None if prefix is None else Prefix(*(part.index_select(0, group.rows) for part in prefix))
            contexts.append(self._padded(qkv, own, group.padding, scores))
        return self._groups.join(contexts)

    @cached_property
    def _groups(self) -> Groups:
        return Groups(self._lengths, self._seen, self._device)

    def _padded(self, qkv: Tensor, prefix: Prefix | None, padding: Padding, scores: LayerScores | None) -> Tensor:
        padded = padding.pad(qkv)  # [rows, width, 3 * hidden]
        heads = padded.view(*padded.shape[:2], 3, self._num_heads, -1)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        added = None if scores is None else scores.between(query, key).to(qkv.dtype)
        if prefix is not None:
            key, value = torch.cat((prefix.keys, key), 2), torch.cat((prefix.values, value), 2)
        mask = self._mask(padding, qkv, key.shape[2] - padding.width)
        if added is not None:
            added = F.pad(added, (key.shape[2] - padding.width, 0))
            mask = added if mask is None else added + mask
        attend = _differentiable if qkv.requires_grad else F.scaled_dot_product_attention
        return padding.unpad(attend(query, key, value, mask, scale=scores and scores.scale).transpose(1, 2).flatten(2))

    def _mask(self, padding: Padding, like: Tensor, prefix_len: int) -> Tensor | None:
        """What is added to padded logits, broadcast to [rows, heads, queries, keys]."""
        if self._window is not None and padding.width > self._window + 1:
            return F.pad(padding.near_mask(like.dtype, self._window), (prefix_len, 0))[:, None]
        if padding.all_seen:
            return None
        return F.pad(padding.mask(like.dtype), (prefix_len, 0))[:, None, None, :]


def _attend_row(query: Tensor, key: Tensor, value: Tensor, added: Tensor | None, scale: float | None) -> Tensor:
    """One row's context, [heads, tokens, head size]; `added` is what positions add to the scores."""
    if key.shape[1] not in _UNFUSED_NUM_KEYS:
        mask = None if added is None else added[None]
        return F.scaled_dot_product_attention(query[None], key[None], value[None], mask, scale=scale)[0]
    alpha = query.shape[-1] ** -0.5 if scale is None else scale
    # With `beta` 0 torch never reads the first argument.
    first = query.new_empty(1, 1, 1) if added is None else added
    logits = torch.baddbmm(first, query, key.transpose(1, 2), beta=0 if added is None else 1, alpha=alpha)
    return torch.bmm(logits.softmax(-1), value)


def _differentiable(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, scale: float | None = None
) -> Tensor:
    """Attention by plain products: on the CPU the backward pass of the fused kernel is several times slower."""
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    scores = torch.matmul(query * factor, key.transpose(-1, -2))
    return torch.matmul((scores if mask is None else scores + mask).softmax(-1), value)


class SpanAttention:
    """One attention for each span of the rows of a batch, with a `window` as in `Span`, or with `scores`. All layers
    use it."""

    def __init__(
        self, packed: Packed, adaptation: Adaptation, num_heads: int, window: int | None = None,
        scores: PositionScores | None = None,
    ) -> None:  # fmt: skip
        self._adaptation, self._scores = adaptation, scores
        self._spans = [Span(packed, rows, num_heads, window) for rows in adaptation.spans(len(packed.lengths))]

    def attend(self, layer: int, x: Tensor, qkv: Tensor) -> Tensor:
        """Context [tokens, hidden] of `qkv` [tokens, 3 * hidden], which is computed from `x` [tokens, hidden]."""
        scores = None
        if self._scores is not None:
            scores = LayerScores(self._scores.scale, partial(self._scores.between, layer))
        contexts, sizes = [], [span.tokens.stop - span.tokens.start for span in self._spans]
        # The backward pass of slices would fill one whole tensor for each.
        for number, (span, own, given) in enumerate(
            zip(self._spans, torch.split(qkv, sizes), torch.split(x, sizes), strict=True)
        ):
            contexts.append(span.attend(own, self._adaptation.prefix(layer, number, given), scores))
        return contexts[0] if len(contexts) == 1 else torch.cat(contexts)


def attend_near(query: Tensor, key: Tensor, value: Tensor, prefix: tuple[Tensor, Tensor] | None, window: int) -> Tensor:
    """The context of queries that attend to `prefix` keys and values and to the tokens at most `window` away; all are
    [heads, tokens, head size]."""
    length, context = query.shape[1], list[Tensor]()
    for first in range(0, length, _BLOCK):
        last = min(first + _BLOCK, length)
        low, high = max(first - window, 0), min(last + window, length)
        keys, values = key[:, low:high], value[:, low:high]
        seen = (torch.arange(low, high) - torch.arange(first, last)[:, None]).abs() <= window
        if prefix is not None:
            keys, values = torch.cat((prefix[0], keys), 1), torch.cat((prefix[1], values), 1)
            seen = F.pad(seen, (prefix[0].shape[1], 0), value=True)
        found = F.scaled_dot_product_attention(query[None, :, first:last], keys[None], values[None], seen)
        context.append(found[0])
    return torch.cat(context, 1)
