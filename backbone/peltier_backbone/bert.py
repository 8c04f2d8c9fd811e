"""The padding-free forward of BERT and RoBERTa (post-LN encoders; docs/methods.md#sites)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from peltier_backbone.adaptation import NO_ADAPTATION, Adaptation
from peltier_backbone.bert_config import BertConfig
from peltier_backbone.linear import Linear
from peltier_backbone.norm import LayerNorm
from peltier_backbone.packing import Packed
from peltier_backbone.varlen import create_span

# (layer, its input [tokens, hidden], queries, keys and values [tokens, 3 * hidden]) -> context [tokens, hidden].
Attend = Callable[[int, Tensor, Tensor], Tensor]


class Embedded(Protocol):
    """What the embeddings read, each [tokens]. `Packed` is one."""

    @property
    def ids(self) -> Tensor: ...

    @property
    def types(self) -> Tensor: ...

    @property
    def positions(self) -> Tensor: ...


@dataclass(frozen=True)
class Embeddings:
    """Token, position and token-type tables, each [entries, hidden], and their norm."""

    tokens: Tensor
    positions: Tensor
    types: Tensor
    norm: LayerNorm

    def __call__(self, read: Embedded) -> Tensor:
        """The summed embeddings before the norm, [tokens, hidden]."""
        x = F.embedding(read.ids, self.tokens)
        return x + F.embedding(read.positions, self.positions) + F.embedding(read.types, self.types)


@dataclass(frozen=True)
class Layer:
    """One encoder layer's frozen maps; query, key and value are one map [3 * hidden, hidden]."""

    query_key_value: Linear
    attention_output: Linear
    attention_norm: LayerNorm
    intermediate: Linear
    output: Linear
    output_norm: LayerNorm


@dataclass(frozen=True)
class Bert:
    """The frozen encoder. It is never mutated; what a batch adds comes in as an `Adaptation`."""

    config: BertConfig
    embeddings: Embeddings
    layers: Sequence[Layer]
    pooler: Linear | None

    def __call__(self, packed: Packed, adaptation: Adaptation = NO_ADAPTATION) -> Tensor:
        """Hidden states of the last layer, [tokens, hidden]."""
        like, heads = self.embeddings.tokens, self.config.num_heads
        spans = [create_span(packed, rows, heads, like) for rows in adaptation.spans(len(packed.lengths))]

        def attend(layer: int, x: Tensor, qkv: Tensor) -> Tensor:
            parts = [
                span.attend(qkv[span.tokens], adaptation.prefix(layer, number, x[span.tokens]))
                for number, span in enumerate(spans)
            ]
            return parts[0] if len(parts) == 1 else torch.cat(parts)

        return self.encode(packed, adaptation, attend)

    def encode(self, read: Embedded, adaptation: Adaptation, attend: Attend) -> Tensor:
        """The same where the caller says who attends to whom; nothing here asks where rows begin or end."""
        x = adaptation.norm(0, self.embeddings(read), self.embeddings.norm)
        for index, layer in enumerate(self.layers):
            x = _attention(x, index, layer, attend, adaptation)
            x = _feed_forward(x, index, layer, adaptation)
        return x

    def norms(self) -> list[LayerNorm]:
        """All norms in `Adaptation.norm`'s order: the embedding's, then two a layer."""
        return [self.embeddings.norm] + [norm for la in self.layers for norm in (la.attention_norm, la.output_norm)]


def _attention(x: Tensor, index: int, layer: Layer, attend: Attend, adaptation: Adaptation) -> Tensor:
    qkv = adaptation.project(index, "query_key_value", x, layer.query_key_value(x))
    context = attend(index, x, qkv)
    y = adaptation.project(index, "attention_output", context, layer.attention_output(context))
    y = adaptation.sublayer(index, "attention", y, x)
    return adaptation.norm(2 * index + 1, y, layer.attention_norm, x)


def _feed_forward(x: Tensor, index: int, layer: Layer, adaptation: Adaptation) -> Tensor:
    if "intermediate" in adaptation.projections:
        inner = F.gelu(adaptation.project(index, "intermediate", x, layer.intermediate(x)))
    else:
        inner = layer.intermediate.gelu(x)
    y = adaptation.project(index, "output", inner, layer.output(inner))
    y = adaptation.sublayer(index, "ffn", y, x)
    return adaptation.norm(2 * index + 2, y, layer.output_norm, x)
