"""T5's attention sub-layers. Each knows its numbers in the whole model, by which adaptations know it."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from peltier_backbone.adaptation import Adaptation
from peltier_backbone.linear import Linear
from peltier_backbone.norm import RMSNorm
from peltier_backbone.prefix_attention import PrefixAttention
from peltier_backbone.products import Attended

# (projected tokens, whether totals are wanted) -> what they attended to
Attend = Callable[[Tensor, bool], Attended]


@dataclass(frozen=True)
class SelfAttention:
    """x + output(attention(norm(x))); query, key and value are one map [3 * attention, hidden]."""

    block: int
    attention: int
    norm_index: int
    norm: RMSNorm
    query_key_value: Linear
    output: Linear

    def __call__(self, x: Tensor, attend: Attend, prefixed: PrefixAttention, adaptation: Adaptation) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]; `attend` takes queries, keys and values."""
        normed, number = adaptation.norm(self.norm_index, x, self.norm), self.attention
        qkv = adaptation.project(number, "query_key_value", normed, self.query_key_value(normed))
        query = qkv[:, : qkv.shape[1] // 3]
        context = prefixed.attend(number, normed, query, lambda total: attend(qkv, total))
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

    def __call__(self, x: Tensor, attend: Attend, prefixed: PrefixAttention, adaptation: Adaptation) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]; `attend` takes queries. No bottleneck acts here
        (docs/methods.md#sites)."""
        normed, number = adaptation.norm(self.norm_index, x, self.norm), self.attention
        query = adaptation.project(number, "query", normed, self.query(normed))
        context = prefixed.attend(number, normed, query, lambda total: attend(query, total))
        return x + adaptation.project(number, "attention_output", context, self.output(context))
