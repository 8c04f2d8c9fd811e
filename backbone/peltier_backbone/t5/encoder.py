"""T5's padding-free encoder."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from peltier_backbone.attention.adaptation import Adaptation
from peltier_backbone.attention.prefix_attention import Attended, PrefixAttention
from peltier_backbone.attention.ragged_attention import RaggedAttention
from peltier_backbone.attention.relative import RelativeBias, RowBias
from peltier_backbone.attention.view import PrefixedSelfView, SelfView
from peltier_backbone.linear.norm import Norm, RMSNorm
from peltier_backbone.t5.sublayers import FeedForward, SelfAttention


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
        """The same of tokens that attend as `view` says."""
        for layer, block in enumerate(self.blocks):
            x = block.attention(x, layer, view, adaptation)
            x = block.feed_forward(x, adaptation)
        return adaptation.norm(2 * len(self.blocks), x, self.norm)

    def norms(self) -> list[Norm]:
        """Two norms for each block, then the final norm."""
        return [norm for block in self.blocks for norm in (block.attention.norm, block.feed_forward.norm)] + [self.norm]
