"""The attention of one layer of ModernBERT and EuroBERT (pre-norm; docs/methods.md#sites)."""

from dataclasses import dataclass

from torch import Tensor

from peltier_backbone.attention.adaptation import Adaptation
from peltier_backbone.bert.layer import Attention
from peltier_backbone.linear.linear import Linear
from peltier_backbone.linear.norm import Norm
from peltier_backbone.t5.sublayers import FeedForward


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
