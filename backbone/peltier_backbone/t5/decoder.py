"""T5's decoder. A view says what tokens attend to: `TreeView` for given tokens, `StepView` for one step of texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from peltier_backbone.attention.adaptation import Adaptation
from peltier_backbone.attention.prefix_attention import PrefixAttention
from peltier_backbone.attention.relative import RelativeBias
from peltier_backbone.attention.view import View
from peltier_backbone.linear.norm import Norm, RMSNorm
from peltier_backbone.native.stack import NativeStack
from peltier_backbone.t5.stack import lay_out
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

    def __call__(self, x: Tensor, view: View, adaptation: Adaptation) -> Tensor:
        """The states after the final norm of embedded tokens `x`, both [tokens, hidden]. Each token is one row of the
        adaptation."""
        prefixed = PrefixAttention(adaptation, [1] * len(x), self.num_heads)
        for layer, block in enumerate(self.blocks):
            x = block.own(x, layer, view, prefixed, adaptation)
            x = block.cross(x, layer, view, prefixed, adaptation)
            x = block.feed_forward(x, adaptation)
        return adaptation.norm(self.norm_index, x, self.norm)

    @cached_property
    def native(self) -> NativeStack | None:
        """The blocks for the native kernels; None if these do not compute all maps."""
        layers = [(block.own, block.cross, block.feed_forward) for block in self.blocks]
        return lay_out(layers, self.norm, self.norm_index, self.bias)

    def norms(self) -> list[Norm]:
        """Three norms for each block, then the final norm."""
        norms = [norm for block in self.blocks for norm in (block.own.norm, block.cross.norm, block.feed_forward.norm)]
        return [*norms, self.norm]
