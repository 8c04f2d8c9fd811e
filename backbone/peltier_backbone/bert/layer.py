"""One layer of BERT and its relatives (post-LN; docs/methods.md#sites)."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from peltier_backbone.attention.adaptation import Adaptation
from peltier_backbone.attention.rotary import Rotary
from peltier_backbone.linear.activation import Activation, activate
from peltier_backbone.linear.linear import Linear
from peltier_backbone.linear.norm import LayerNorm


class Attention(Protocol):
    """Which tokens attend to which."""

    def attend(self, layer: int, x: Tensor, qkv: Tensor) -> Tensor:
        """Context [tokens, hidden] of queries, keys and values [tokens, 3 * hidden], which are computed from `x`."""


@dataclass(frozen=True)
class RotatedAttention:
    """Attention of queries and keys at rotary positions [tokens]."""

    rotary: Rotary
    positions: Tensor
    attention: Attention

    def attend(self, layer: int, x: Tensor, qkv: Tensor) -> Tensor:
        return self.attention.attend(layer, x, self.rotary.rotate(qkv, self.positions))


@dataclass(frozen=True)
class Layer:
    """One encoder layer's frozen maps; query, key and value are one map [3 * hidden, hidden]. The first half of a
    `gated` `intermediate`'s columns is activated and then multiplied by the second half."""

    query_key_value: Linear
    attention_output: Linear
    attention_norm: LayerNorm
    intermediate: Linear
    output: Linear
    output_norm: LayerNorm
    activation: Activation
    gated: bool

    def maps(self) -> tuple[Linear, ...]:
        """All of its maps."""
        return self.query_key_value, self.attention_output, self.intermediate, self.output

    def __call__(self, x: Tensor, index: int, attention: Attention, adaptation: Adaptation) -> Tensor:
        """The layer, of number `index`, of x [tokens, hidden]."""
        return self._feed_forward(self._attention(x, index, attention, adaptation), index, adaptation)

    def activate(self, y: Tensor) -> Tensor:
        """The input of `output` from that of the activation."""
        return activate(y, self.activation, gated=self.gated)

    def _attention(self, x: Tensor, index: int, attention: Attention, adaptation: Adaptation) -> Tensor:
        qkv = adaptation.project(index, "query_key_value", x, self.query_key_value(x))
        context = attention.attend(index, x, qkv)
        y = adaptation.project(index, "attention_output", context, self.attention_output(context))
        y = adaptation.sublayer(index, "attention", y, x)
        return adaptation.norm(2 * index + 1, y, self.attention_norm, x)

    def _feed_forward(self, x: Tensor, index: int, adaptation: Adaptation) -> Tensor:
        y = adaptation.sublayer(index, "ffn", self._expand_and_contract(x, index, adaptation), x)
        return adaptation.norm(2 * index + 2, y, self.output_norm, x)

    def _expand_and_contract(self, x: Tensor, index: int, adaptation: Adaptation) -> Tensor:
        inner = self.activate(adaptation.project(index, "intermediate", x, self.intermediate(x)))
        inner = adaptation.project(index, "activated", inner, inner)
        return adaptation.project(index, "output", inner, self.output(inner))
