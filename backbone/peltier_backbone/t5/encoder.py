"""T5's padding-free encoder."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from peltier_backbone.attention.adaptation import Adaptation
from peltier_backbone.attention.prefix_attention import Attended, PrefixAttention, Prefixes
from peltier_backbone.attention.ragged_attention import RaggedAttention
from peltier_backbone.attention.relative import RelativeBias, RowBias
from peltier_backbone.attention.view import SelfView
from peltier_backbone.linear.norm import Norm, RMSNorm
from peltier_backbone.native.program import Table
from peltier_backbone.native.stack import NativeStack, StackRows
from peltier_backbone.t5.stack import lay_out
from peltier_backbone.t5.sublayers import FeedForward, SelfAttention


@dataclass(frozen=True)
class EncoderBlock:
    """Self-attention, then feed-forward, both pre-norm."""

    attention: SelfAttention
    feed_forward: FeedForward


@dataclass(frozen=True)
class RowView:
    """Each token sees its whole row."""

    rows: RaggedAttention
    bias: RelativeBias

    def attend_self(self, layer: int, qkv: Tensor, prefixes: Prefixes | None) -> Attended:
        size = qkv.shape[1] // 3
        return self.rows.attend(qkv[:, :size], qkv[:, size:], prefixes, self.bias.first_head(layer))

    def place(self, prefixes: Table | None) -> StackRows:
        return StackRows(self.rows.place(prefixes))


@dataclass(frozen=True)
class Encoder:
    """Self-attentions have a relative bias."""

    num_heads: int
    bias: RelativeBias
    blocks: Sequence[EncoderBlock]
    norm: RMSNorm

    def __call__(self, x: Tensor, lengths: Sequence[int], adaptation: Adaptation) -> Tensor:
        """The states after the final norm of embedded packed rows `x` of `lengths` tokens, both [tokens, hidden]."""
        return self.run(x, self.view(x, lengths), lengths, adaptation)

    def view(self, x: Tensor, lengths: Sequence[int]) -> RowView:
        """What each token of packed rows sees, which are embedded as x."""
        biases = RowBias(self.bias, max(lengths))
        return RowView(RaggedAttention(self.num_heads, lengths, lengths, x, biases), self.bias)

    def run(self, x: Tensor, view: SelfView, lengths: Sequence[int], adaptation: Adaptation) -> Tensor:
        """The same, block by block, of tokens that attend as `view` says."""
        prefixed = PrefixAttention(adaptation, lengths, self.num_heads)
        for layer, block in enumerate(self.blocks):
            x = block.attention(x, layer, view, prefixed, adaptation)
            x = block.feed_forward(x, adaptation)
        return adaptation.norm(2 * len(self.blocks), x, self.norm)

    @cached_property
    def native(self) -> NativeStack | None:
        """The blocks for the native kernels; None if these do not compute all maps."""
        layers = [(block.attention, None, block.feed_forward) for block in self.blocks]
        return lay_out(layers, self.norm, 2 * len(self.blocks), self.bias)

    def norms(self) -> list[Norm]:
        """Two norms for each block, then the final norm."""
        return [norm for block in self.blocks for norm in (block.attention.norm, block.feed_forward.norm)] + [self.norm]
