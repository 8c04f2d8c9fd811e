"""The padding-free forward of BERT and RoBERTa (post-LN encoders; docs/methods.md#sites)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from peltier_backbone.activation import activate
from peltier_backbone.adaptation import NO_ADAPTATION, Adaptation
from peltier_backbone.attention import Span
from peltier_backbone.bert_config import BertConfig
from peltier_backbone.linear import Linear
from peltier_backbone.norm import LayerNorm
from peltier_backbone.packing import Packed
from peltier_backbone.table import Table


class Attention(Protocol):
    """Which tokens attend to which."""

    def attend(self, layer: int, x: Tensor, qkv: Tensor) -> Tensor:
        """Context [tokens, hidden] of queries, keys and values [tokens, 3 * hidden], which are computed from `x`."""


class SpanAttention:
    """The attention of a batch, span by span as its adaptation divides it."""

    def __init__(self, packed: Packed, adaptation: Adaptation, num_heads: int, kind: type[Span]) -> None:
        self._adaptation = adaptation
        self._spans = [kind(packed, *rows, num_heads) for rows in adaptation.spans(len(packed.lengths))]

    def attend(self, layer: int, x: Tensor, qkv: Tensor) -> Tensor:
        """Context [tokens, hidden] of `qkv` [tokens, 3 * hidden], which is computed from `x` [tokens, hidden]."""
        contexts = []
        for number, span in enumerate(self._spans):
            prefix = self._adaptation.prefix(layer, number, x[span.tokens])
            contexts.append(span.attend(qkv[span.tokens], prefix))
        return contexts[0] if len(contexts) == 1 else torch.cat(contexts)


class Embedded(Protocol):
    """The inputs of the embeddings, each [tokens]. `Packed` implements this protocol."""

    @property
    def ids(self) -> Tensor: ...

    @property
    def types(self) -> Tensor: ...

    @property
    def positions(self) -> Tensor: ...


@dataclass(frozen=True)
class Embeddings:
    """Token, position and token-type tables, each [entries, hidden], and their norm."""

    tokens: Table
    positions: Tensor
    types: Tensor
    norm: LayerNorm

    def __call__(self, read: Embedded) -> Tensor:
        """The summed embeddings before the norm, [tokens, hidden]."""
        return self.tokens(read.ids) + F.embedding(read.positions, self.positions) + F.embedding(read.types, self.types)


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
    """The frozen encoder. Nothing changes it; a batch passes its adapters as an `Adaptation`."""

    config: BertConfig
    embeddings: Embeddings
    layers: Sequence[Layer]
    pooler: Linear | None
    span_kind: type[Span]

    def __call__(self, packed: Packed, adaptation: Adaptation = NO_ADAPTATION) -> Tensor:
        """Hidden states of the last layer, [tokens, hidden]."""
        attention = SpanAttention(packed, adaptation, self.config.num_heads, self.span_kind)
        return self.encode(packed, adaptation, attention)

    def encode(self, read: Embedded, adaptation: Adaptation, attention: Attention) -> Tensor:
        """Like a call of the model, with the caller's `attention`: nothing else depends on where rows begin and end."""
        x = adaptation.norm(0, self.embeddings(read), self.embeddings.norm)
        for index, layer in enumerate(self.layers):
            x = _attention(x, index, layer, attention, adaptation)
            x = _feed_forward(x, index, layer, adaptation)
        return x

    def norms(self) -> list[LayerNorm]:
        """All norms in the order of `Adaptation.norm`: the embedding norm, then two for each layer."""
        return [self.embeddings.norm] + [norm for la in self.layers for norm in (la.attention_norm, la.output_norm)]


def _attention(x: Tensor, index: int, layer: Layer, attention: Attention, adaptation: Adaptation) -> Tensor:
    qkv = adaptation.project(index, "query_key_value", x, layer.query_key_value(x))
    context = attention.attend(index, x, qkv)
    y = adaptation.project(index, "attention_output", context, layer.attention_output(context))
    y = adaptation.sublayer(index, "attention", y, x)
    return adaptation.norm(2 * index + 1, y, layer.attention_norm, x)


def _feed_forward(x: Tensor, index: int, layer: Layer, adaptation: Adaptation) -> Tensor:
    y = adaptation.sublayer(index, "ffn", _expand_and_contract(x, index, layer, adaptation), x)
    return adaptation.norm(2 * index + 2, y, layer.output_norm, x)


def _expand_and_contract(x: Tensor, index: int, layer: Layer, adaptation: Adaptation) -> Tensor:
    if adaptation.projections.isdisjoint(("intermediate", "output")):
        return layer.intermediate.feed_forward(x, layer.output, "gelu")
    if "intermediate" in adaptation.projections:
        inner = activate(adaptation.project(index, "intermediate", x, layer.intermediate(x)), "gelu")
    else:
        inner = layer.intermediate(x, "gelu")
    return adaptation.project(index, "output", inner, layer.output(inner))
