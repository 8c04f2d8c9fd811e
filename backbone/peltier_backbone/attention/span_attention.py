"""The attention of a batch, span by span as its adaptation divides it."""

import torch
from torch import Tensor

from peltier_backbone.attention.adaptation import Adaptation
from peltier_backbone.attention.attention import Span
from peltier_backbone.text.packing import Packed


class SpanAttention:
    """One attention for each span of the rows of a batch, within a `window` as in `Span`. All layers use it."""

    def __init__(self, packed: Packed, adaptation: Adaptation, num_heads: int, window: int | None = None) -> None:
        self._adaptation = adaptation
        self._spans = [Span(packed, *rows, num_heads, window) for rows in adaptation.spans(len(packed.lengths))]

    def attend(self, layer: int, x: Tensor, qkv: Tensor) -> Tensor:
        """Context [tokens, hidden] of `qkv` [tokens, 3 * hidden], which is computed from `x` [tokens, hidden]."""
        contexts = []
        for number, span in enumerate(self._spans):
            prefix = self._adaptation.prefix(layer, number, x[span.tokens])
            contexts.append(span.attend(qkv[span.tokens], prefix))
        return contexts[0] if len(contexts) == 1 else torch.cat(contexts)
