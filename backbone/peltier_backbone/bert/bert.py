"""The padding-free forward of BERT and its relatives (post-LN encoders; docs/methods.md#sites)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from torch import Tensor
from torch.nn import functional as F

from peltier_backbone.attention.adaptation import NO_ADAPTATION, Adaptation
from peltier_backbone.attention.attention import PositionScores, SpanAttention
from peltier_backbone.attention.rotary import Rotary
from peltier_backbone.bert.convolution import Convolution
from peltier_backbone.bert.layer import Attention, Layer, RotatedAttention
from peltier_backbone.checkpoint.bert_config import BertConfig
from peltier_backbone.linear.linear import Linear
from peltier_backbone.linear.norm import LayerNorm
from peltier_backbone.linear.table import Table
from peltier_backbone.native.rows import PlacedRows, StackRows
from peltier_backbone.text.packing import Packed


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
    """Token, position and token-type tables, each [entries, width], and their norm. DistilBERT has no token types, and
    DeBERTa may lack positions too, as families with rotary ones do. ELECTRA may have a `projection` to the hidden size
    after the norm, DeBERTa a map before it, `widening`."""

    tokens: Table
    positions: Tensor | None
    types: Tensor | None
    norm: LayerNorm
    projection: Linear | None
    widening: Linear | None = None

    def __call__(self, read: Embedded) -> Tensor:
        """The summed embeddings before the norm, as wide as the norm, [tokens, width]."""
        x = self.tokens(read.ids)
        if self.positions is not None:
            x = x + F.embedding(read.positions, self.positions)
        if self.types is not None:
            x = x + F.embedding(read.types, self.types)
        return x if self.widening is None else self.widening(x)


class Positions(Protocol):
    """What relative positions add to the scores of attention; `scale` is as in `PositionScores`."""

    @property
    def scale(self) -> float: ...

    def line(self, width: int) -> Tensor | None:
        """The biases of native attention as in `LineBias`, if there are some."""

    def tables(self) -> Iterable[tuple[str, Tensor]]:
        """What the model has for them, by name."""

    def scores(self, width: int) -> PositionScores:
        """The scores of a batch whose rows have up to `width` tokens."""


@dataclass(frozen=True)
class Bert:
    """The frozen encoder. Nothing changes it; a batch passes its adapters as an `Adaptation`. `rounded`: native
    attention may compute products of bfloat16, as queries, keys and values come from coarse products. `positions` are
    relative ones, `rotary` those that queries and keys turn by; both are None in families with absolute positions only.
    Some DeBERTas have a `convolution` after the first layer."""

    config: BertConfig
    embeddings: Embeddings
    layers: Sequence[Layer]
    pooler: Linear | None
    rounded: bool
    positions: Positions | None = None
    rotary: Rotary | None = None
    convolution: Convolution | None = None

    @property
    def tokens(self) -> Table:
        """The embeddings of all tokens."""
        return self.embeddings.tokens

    def __call__(self, packed: Packed, adaptation: Adaptation = NO_ADAPTATION) -> Tensor:
        """Hidden states of the last layer, [tokens, hidden]."""
        return self.advance(self.embed(packed, adaptation), packed, adaptation, range(len(self.layers)))

    def advance(self, x: Tensor, packed: Packed, adaptation: Adaptation, layers: range) -> Tensor:
        """The states after consecutive `layers` of the states x before them, both [tokens, hidden]."""
        scores = None if self.positions is None else self.positions.scores(max(packed.lengths))
        attention = SpanAttention(packed, adaptation, self.config.num_heads, scores=scores)
        run = partial(self._run, packed, adaptation, attention)
        return run(x, layers) if self.convolution is None else self.convolution.run_around(run, x, packed, layers)

    def encode(self, read: Embedded, adaptation: Adaptation, attention: Attention) -> Tensor:
        """Like a call of the model, with the caller's `attention`: nothing else depends on where rows begin and end, as
        the model has no convolution."""
        assert self.convolution is None, "a convolution reads neighbours"
        return self._run(read, adaptation, attention, self.embed(read, adaptation), range(len(self.layers)))

    def embed(self, read: Embedded, adaptation: Adaptation) -> Tensor:
        """The states before the first layer, [tokens, hidden]."""
        x = adaptation.norm(0, self.embeddings(read), self.embeddings.norm)
        return x if self.embeddings.projection is None else self.embeddings.projection(x)

    def _run(self, read: Embedded, adaptation: Adaptation, attention: Attention, x: Tensor, layers: range) -> Tensor:
        if self.rotary is not None:
            attention = RotatedAttention(self.rotary, read.positions, attention)
        for index in layers:
            x = self.layers[index](x, index, attention, adaptation)
        return x

    def place(self, packed: Packed) -> StackRows:
        """The rows for a native call, each of which sees its own tokens but pads."""
        line = None if self.positions is None else self.positions.line(max(packed.lengths))
        return StackRows(PlacedRows.packed(packed.lengths, packed.seen, line), positions=packed.positions)

    def norms(self) -> list[LayerNorm]:
        """All norms in the order of `Adaptation.norm`: the embedding norm, then two for each layer."""
        return [self.embeddings.norm] + [norm for la in self.layers for norm in (la.attention_norm, la.output_norm)]
