"""The padding-free forward of ModernBERT (Warner et al. 2024) and EuroBERT (pre-norm; docs/methods.md#sites)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from peltier_backbone.attention.adaptation import NO_ADAPTATION, Adaptation
from peltier_backbone.attention.attention import SpanAttention
from peltier_backbone.attention.rotary import Rotary
from peltier_backbone.bert.bert import Embedded
from peltier_backbone.bert.layer import Attention, RotatedAttention
from peltier_backbone.checkpoint.modernbert_config import ModernBertConfig
from peltier_backbone.linear.linear import Linear
from peltier_backbone.linear.norm import Norm
from peltier_backbone.linear.table import Table
from peltier_backbone.native.rows import PlacedRows, StackRows
from peltier_backbone.t5.sublayers import FeedForward
from peltier_backbone.text.packing import Packed


@dataclass(frozen=True)
class RotaryAttention:
    """x + output(attention(norm(x))); query, key and value are one map [3 * hidden, hidden]. ModernBERT's first
    layer has no norm: it reads the norm of the embeddings. A `local` one sees near tokens only."""

    number: int
    norm: Norm | None
    query_key_value: Linear
    output: Linear
    local: bool

    def __call__(self, x: Tensor, attention: Attention, adaptation: Adaptation) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]."""
        number = self.number
        normed = x if self.norm is None else adaptation.norm(self.norm_index, x, self.norm)
        qkv = adaptation.project(number, "query_key_value", normed, self.query_key_value(normed))
        context = attention.attend(number, normed, qkv)
        y = adaptation.project(number, "attention_output", context, self.output(context))
        return x + adaptation.sublayer(number, "attention", y, x)

    @property
    def norm_index(self) -> int:
        """The number of its norm in the model."""
        return 2 * self.number


@dataclass(frozen=True)
class Layer:
    """Attention, then a gated feed-forward."""

    attention: RotaryAttention
    feed_forward: FeedForward


@dataclass(frozen=True)
class ModernBert:
    """The frozen encoder. Nothing changes it; a batch passes its adapters as an `Adaptation`. A prefix key has no
    position: it is as if it were at position 0 (docs/methods/prefix.md). `rounded` is as in `Bert`.
    EuroBERT has no norm of the embeddings."""

    config: ModernBertConfig
    tokens: Table
    norm: Norm | None
    layers: Sequence[Layer]
    final_norm: Norm
    global_rotary: Rotary
    local_rotary: Rotary
    rounded: bool
    pooler: ClassVar[None] = None
    convolution: ClassVar[None] = None

    def __call__(self, packed: Packed, adaptation: Adaptation = NO_ADAPTATION) -> Tensor:
        """Hidden states after the final norm, [tokens, hidden]."""
        return self.advance(self.embed(packed, adaptation), packed, adaptation, range(len(self.layers)))

    def embed(self, read: Embedded, adaptation: Adaptation) -> Tensor:
        """The states before the first layer, [tokens, hidden]."""
        x = self.tokens(read.ids)
        return adaptation.embed(x) if self.norm is None else adaptation.norm(0, x, self.norm)

    def advance(self, x: Tensor, packed: Packed, adaptation: Adaptation, layers: range) -> Tensor:
        """The states after consecutive `layers` of the states x before them, both [tokens, hidden]. The final norm
        follows the last layer."""
        far = SpanAttention(packed, adaptation, self.config.num_heads)
        near = far
        if any(self.config.is_local):
            near = SpanAttention(packed, adaptation, self.config.num_heads, self.config.window)
        return self._run(x, packed, adaptation, (far, near), layers)

    def encode(self, read: Embedded, adaptation: Adaptation, far: Attention, near: Attention) -> Tensor:
        """Like a call of the model, with the caller's attention of global layers, `far`, and of local ones, `near`:
        nothing else depends on where rows begin and end."""
        return self._run(self.embed(read, adaptation), read, adaptation, (far, near), range(len(self.layers)))

    def rotary(self, layer: Layer) -> Rotary:
        """The rotary positions of a layer."""
        return self.local_rotary if layer.attention.local else self.global_rotary

    def _run(
        self, x: Tensor, read: Embedded, adaptation: Adaptation, attentions: tuple[Attention, Attention], layers: range
    ) -> Tensor:
        for layer in self.layers[layers.start : layers.stop]:
            attention = attentions[layer.attention.local]
            turned = RotatedAttention(self.rotary(layer), read.positions, attention)
            x = layer.attention(x, turned, adaptation)
            x = layer.feed_forward(x, adaptation)
        last = len(self.layers)
        return x if layers.stop < last else adaptation.norm(2 * last, x, self.final_norm)

    def place(self, packed: Packed) -> StackRows:
        """The rows for a native call, each of which sees its own tokens."""
        return StackRows(PlacedRows.packed(packed.lengths, packed.seen), positions=packed.positions)

    def norms(self) -> list[Norm]:
        """All norms in the order of `Adaptation.norm`: that of the embeddings, those before attentions from the second
        on and before feed-forwards, and the final one."""
        own = [norm for la in self.layers for norm in (la.attention.norm, la.feed_forward.norm)]
        return [norm for norm in (self.norm, *own, self.final_norm) if norm is not None]
