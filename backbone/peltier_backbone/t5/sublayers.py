"""The sub-layers of T5, and the feed-forward layer of ModernBERT. Each has its block, attention or norm numbers in the
whole model, which `Adaptation` uses."""

from dataclasses import dataclass

from torch import Tensor

from peltier_backbone.attention.adaptation import Adaptation
from peltier_backbone.attention.view import SelfView, View
from peltier_backbone.checkpoint.t5_config import Activation as T5Activation
from peltier_backbone.linear.activation import Activation, activate
from peltier_backbone.linear.linear import Linear
from peltier_backbone.linear.norm import Norm, RMSNorm


@dataclass(frozen=True)
class SelfAttention:
    """x + output(attention(norm(x))); query, key and value are one map [3 * attention, hidden]."""

    block: int
    attention: int
    norm_index: int
    norm: RMSNorm
    query_key_value: Linear
    output: Linear

    def __call__(self, x: Tensor, layer: int, view: SelfView, adaptation: Adaptation) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]; `layer` is its number in its stack."""
        normed, number = adaptation.norm(self.norm_index, x, self.norm), self.attention
        qkv = adaptation.project(number, "query_key_value", normed, self.query_key_value(normed))
        context = view.attend_self(layer, number, normed, qkv)
        y = adaptation.project(number, "attention_output", context, self.output(context))
        return x + adaptation.sublayer(self.block, "attention", y, x)


@dataclass(frozen=True)
class CrossAttention:
    """x + output(attention(norm(x))) over the encoder's states; key and value are one map [2 * attention, hidden]."""

    attention: int
    norm_index: int
    norm: RMSNorm
    query: Linear
    key_value: Linear
    output: Linear

    def project_kv(self, states: Tensor, adaptation: Adaptation) -> Tensor:
        """Keys and values of the encoder's states, [tokens, 2 * attention]."""
        return adaptation.project(self.attention, "key_value", states, self.key_value(states))

    def __call__(self, x: Tensor, layer: int, view: View, adaptation: Adaptation) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]; `layer` is its number in its stack. No bottleneck acts here
        (docs/methods.md#sites)."""
        normed, number = adaptation.norm(self.norm_index, x, self.norm), self.attention
        query = adaptation.project(number, "query", normed, self.query(normed))
        context = view.attend_cross(layer, number, normed, query)
        return x + adaptation.project(number, "attention_output", context, self.output(context))


@dataclass(frozen=True)
class FeedForward:
    """x + output(activation(intermediate(norm(x)))), in T5 and ModernBERT. It is gated in T5 v1.1 and ModernBERT, and
    not in T5 v1.0. The first half of a gated `intermediate`'s columns is activated and then multiplied by the second
    half."""

    block: int
    norm_index: int
    norm: Norm
    intermediate: Linear
    output: Linear
    activation: T5Activation
    gated: bool

    def __call__(self, x: Tensor, adaptation: Adaptation) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]."""
        normed = adaptation.norm(self.norm_index, x, self.norm)
        return x + adaptation.sublayer(self.block, "ffn", self._expand_and_contract(normed, adaptation), x)

    @property
    def kind(self) -> Activation:
        """The kernels' name of the activation."""
        return "swish" if self.activation == "silu" else self.activation

    def activate(self, y: Tensor) -> Tensor:
        """The input of `output` from that of the activation."""
        return activate(y, self.kind, gated=self.gated)

    def _expand_and_contract(self, x: Tensor, adaptation: Adaptation) -> Tensor:
        inner = self.activate(adaptation.project(self.block, "intermediate", x, self.intermediate(x)))
        inner = adaptation.project(self.block, "activated", inner, inner)
        return adaptation.project(self.block, "output", inner, self.output(inner))
