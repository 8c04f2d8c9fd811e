"""T5's decoder. What tokens attend to is a `TreeView` for given tokens, and a `StepView` for one step of texts."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from peltier_backbone.attention.adaptation import Adaptation
from peltier_backbone.attention.prefix_attention import PrefixAttention
from peltier_backbone.attention.relative import RelativeBias
from peltier_backbone.attention.view import CrossRows, PrefixedView, View
from peltier_backbone.linear.norm import Norm, RMSNorm
from peltier_backbone.t5.sublayers import CrossAttention, FeedForward, SelfAttention


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
        """The same of tokens that attend as `view` says."""
        for layer, block in enumerate(self.blocks):
            x = block.own(x, layer, view, adaptation)
            x = block.cross(x, layer, view, adaptation)
            x = block.feed_forward(x, adaptation)
        return adaptation.norm(self.norm_index, x, self.norm)

    def norms(self) -> list[Norm]:
        """Three norms for each block, then the final norm."""
        norms = [norm for block in self.blocks for norm in (block.own.norm, block.cross.norm, block.feed_forward.norm)]
        return [*norms, self.norm]
