"""T5's padding-free encoder, and its decoder. Tokens of a decoder attend as a `TreeView` says for given tokens, and a
`StepView` for one step of texts."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from peltier_backbone.attention.adaptation import Adaptation
from peltier_backbone.attention.ragged_attention import RaggedAttention
from peltier_backbone.attention.relative import RelativeBias, RowBias
from peltier_backbone.attention.view import (
    Attended,
    CrossRows,
    PrefixAttention,
    PrefixedSelfView,
    PrefixedView,
    SelfView,
    View,
)
from peltier_backbone.linear.norm import Norm, RMSNorm
from peltier_backbone.t5.sublayers import CrossAttention, FeedForward, SelfAttention


@dataclass(frozen=True)
class EncoderBlock:
    """Self-attention, then feed-forward, both pre-norm."""

    attention: SelfAttention
    feed_forward: FeedForward


@dataclass(frozen=True)
class _WholeRows:
    """Each token sees its whole row."""

    attention: RaggedAttention
    bias: RelativeBias

    def attend_self(self, layer: int, qkv: Tensor, *, with_logsumexp: bool) -> Attended:
        size, first_head = qkv.shape[1] // 3, self.bias.first_head(layer)
        return self.attention.attend(qkv[:, :size], qkv[:, size:], with_logsumexp=with_logsumexp, first_head=first_head)


@dataclass(frozen=True)
class Encoder:
    """Self-attentions have a relative bias."""

    num_heads: int
    bias: RelativeBias
    blocks: Sequence[EncoderBlock]
    norm: RMSNorm

    def __call__(self, x: Tensor, lengths: Sequence[int], adaptation: Adaptation) -> Tensor:
        """The states after the final norm of embedded packed rows `x` of `lengths` tokens, both [tokens, hidden]."""
        return self.run(x, self.view(x, lengths, adaptation), adaptation)

    def view(self, x: Tensor, lengths: Sequence[int], adaptation: Adaptation) -> SelfView:
        """Each token of `x`, packed rows of `lengths` tokens, attends to its row and to the prefix of its adapter."""
        biases = RowBias(self.bias, max(lengths))
        attention = RaggedAttention(self.num_heads, lengths, lengths, x, biases)
        prefixes = PrefixAttention(adaptation, lengths, self.num_heads)
        return PrefixedSelfView(_WholeRows(attention, self.bias), prefixes)

    def run(self, x: Tensor, view: SelfView, adaptation: Adaptation) -> Tensor:
        """The states after all layers and the final norm; tokens attend as `view` says."""
        for layer, block in enumerate(self.blocks):
            x = block.attention(x, layer, view, adaptation)
            x = block.feed_forward(x, adaptation)
        return adaptation.norm(2 * len(self.blocks), x, self.norm)

    def norms(self) -> list[Norm]:
        """Two norms for each block, then the final norm."""
        return [norm for block in self.blocks for norm in (block.attention.norm, block.feed_forward.norm)] + [self.norm]


@dataclass(frozen=True)
class DecoderBlock:
    """Self-attention, cross-attention, then feed-forward, all pre-norm."""

    own: SelfAttention
    cross: CrossAttention
    feed_forward: FeedForward


@dataclass(frozen=True)
class Decoder:
    """Self-attentions have a relative bias; cross-attentions have none."""

    num_heads: int
    bias: RelativeBias
    blocks: Sequence[DecoderBlock]
    norm: RMSNorm
    norm_index: int

    def __call__(self, x: Tensor, rows: CrossRows, adaptation: Adaptation) -> Tensor:
        """The states after the final norm of embedded tokens `x`, both [tokens, hidden]. Each token is one row of the
        adaptation."""
        return self.run(x, self.view(rows, len(x), adaptation), adaptation)

    def view(self, rows: CrossRows, num_tokens: int, adaptation: Adaptation) -> View:
        """Each of `num_tokens` tokens attends as `rows` say, and to the prefix of its adapter."""
        return PrefixedView(rows, PrefixAttention(adaptation, [1] * num_tokens, self.num_heads))

    def run(self, x: Tensor, view: View, adaptation: Adaptation) -> Tensor:
        """The states after all layers and the final norm; tokens attend as `view` says."""
        for layer, block in enumerate(self.blocks):
            x = block.own(x, layer, view, adaptation)
            x = block.cross(x, layer, view, adaptation)
            x = block.feed_forward(x, adaptation)
        return adaptation.norm(self.norm_index, x, self.norm)

    def norms(self) -> list[Norm]:
        """Three norms for each block, then the final norm."""
        norms = [norm for block in self.blocks for norm in (block.own.norm, block.cross.norm, block.feed_forward.norm)]
        return [*norms, self.norm]
