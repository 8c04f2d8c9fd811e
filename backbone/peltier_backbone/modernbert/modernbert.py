"""The padding-free forward of ModernBERT (Warner et al. 2024; docs/methods.md#sites)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from torch import Tensor

from peltier_backbone.attention.adaptation import NO_ADAPTATION, Adaptation
from peltier_backbone.attention.rotary import Rotary
from peltier_backbone.attention.span_attention import SpanAttention
from peltier_backbone.attention.view import PlacedView
from peltier_backbone.bert.layer import Attention
from peltier_backbone.checkpoint.modernbert_config import ModernBertConfig
from peltier_backbone.linear.norm import LayerNorm
from peltier_backbone.linear.table import Table
from peltier_backbone.modernbert.layer import Layer
from peltier_backbone.modernbert.stack import lay_out
from peltier_backbone.native import program
from peltier_backbone.native.placed_rows import PlacedRows
from peltier_backbone.native.stack import NativeStack, StackRows
from peltier_backbone.text.packing import Packed


@dataclass(frozen=True)
class _Rotating:
    """Attention of queries and keys at rotary positions."""

    rotary: Rotary
    positions: Tensor
    attention: Attention

    def attend(self, layer: int, x: Tensor, qkv: Tensor) -> Tensor:
        return self.attention.attend(layer, x, self.rotary.rotate(qkv, self.positions))


@dataclass(frozen=True)
class _View:
    """Each token sees its row, or what is near in it."""

    packed: Packed

    def place(self, prefixes: program.Table | None) -> StackRows:
        assert self.packed.seen == self.packed.lengths, "a padded task is not served, as a pad has no near tokens"
        rows = PlacedRows.packed(self.packed.lengths, self.packed.seen)
        return StackRows(rows, positions=self.packed.positions)


@dataclass(frozen=True)
class ModernBert:
    """The frozen encoder. Nothing changes it; a batch passes its adapters as an `Adaptation`. A prefix key has no
    position: it is as if it were at position 0 (docs/methods/prefix.md). `rounded` is as in `Bert`."""

    config: ModernBertConfig
    tokens: Table
    norm: LayerNorm
    layers: Sequence[Layer]
    final_norm: LayerNorm
    global_rotary: Rotary
    local_rotary: Rotary
    rounded: bool
    pooler: ClassVar[None] = None

    def __call__(self, packed: Packed, adaptation: Adaptation = NO_ADAPTATION) -> Tensor:
        """Hidden states after the final norm, [tokens, hidden]."""
        return self.advance(self.embed(packed, adaptation), packed, adaptation, range(len(self.layers)))

    def embed(self, packed: Packed, adaptation: Adaptation) -> Tensor:
        """The states before the first layer, [tokens, hidden]."""
        return adaptation.norm(0, self.tokens(packed.ids), self.norm)

    def advance(self, x: Tensor, packed: Packed, adaptation: Adaptation, layers: range) -> Tensor:
        """The states after consecutive `layers` of the states x before them, both [tokens, hidden]. The final norm
        follows the last layer."""
        last = len(self.layers)
        far, near = self._attentions(packed, adaptation)
        for layer in self.layers[layers.start : layers.stop]:
            x = layer.attention(x, near if layer.attention.local else far, adaptation)
            x = layer.feed_forward(x, adaptation)
        return x if layers.stop < last else adaptation.norm(2 * last, x, self.final_norm)

    def _attentions(self, packed: Packed, adaptation: Adaptation) -> tuple[Attention, Attention]:
        """The attention of global layers, and of local ones."""
        far = SpanAttention(packed, adaptation, self.config.num_heads)
        near = SpanAttention(packed, adaptation, self.config.num_heads, self.config.window)
        return (
            _Rotating(self.global_rotary, packed.positions, far),
            _Rotating(self.local_rotary, packed.positions, near),
        )

    def view(self, packed: Packed) -> PlacedView:
        """What each token sees, for the native kernels."""
        return _View(packed)

    @cached_property
    def native(self) -> NativeStack | None:
        """The layers for the native kernels; None if these do not compute all maps."""
        rotaries = self.global_rotary, self.local_rotary
        return lay_out(self.config, self.layers, self.final_norm, rotaries, rounded=self.rounded)

    def norms(self) -> list[LayerNorm]:
        """All norms in the order of `Adaptation.norm`: that of the embeddings, those before attentions from the second
        on and before feed-forwards, and the final one."""
        own = [norm for la in self.layers for norm in (la.attention.norm, la.feed_forward.norm)]
        return [self.norm, *(norm for norm in own if isinstance(norm, LayerNorm)), self.final_norm]
