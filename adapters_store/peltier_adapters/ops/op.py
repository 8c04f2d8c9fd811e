"""The operations that adapters are made of.

An op's tensors are those of one adapter, or stand for those of any adapter of a signature: such a one is on the meta
device, a view of a flat tensor, and lies at the same place in each adapter's own flat tensor (`at`). Weights are in
float32 and multiply from the right, x [tokens, in] @ W [in, out].
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from peltier_backbone.native.program import Activation
from peltier_backbone.norm import Norm
from torch import Tensor

# Where ops act: after a frozen projection, on the output of a sub-layer, on the keys and values of an attention, on
# the scores of the pooler, and on one vector a row after the last layer. The first ones are `adaptation.Projection`s.
SITES = (
    "query_key_value", "query", "key_value", "attention_output", "intermediate", "output", "lm_head",
    "attention", "ffn", "prefix", "pooler", "head",
)  # fmt: skip
Place = tuple[str, int]


@dataclass(frozen=True, eq=False)
class MatmulStep:
    """act(x W + b) with W [in, out] and b [out]; a row of x counts as `fold` rows [in]."""

    weight: Tensor
    bias: Tensor | None = None
    fold: int = 1
    activation: Activation = "none"


@dataclass(frozen=True, eq=False)
class Gate:
    """One number a row. The mean over the row's tokens of sigmoid(x w + b), w [in] and b []; or, with a `column`, that
    column of the softmax over the means of relu(x w + b), w [in, 2] and b [2]. Recorded as `label` of layer `number`.
    """

    label: str
    number: int
    weight: Tensor
    bias: Tensor
    column: int | None = None


@dataclass(frozen=True, eq=False)
class Normed:
    """The norm of y + residual: number `index`, by the adapter's own weights if it has some, else as `base`."""

    index: int
    base: Norm


@dataclass(frozen=True, eq=False)
class FusedMatmul:
    """y += gain * gate * steps(input), in the columns of y from `column` on. The input is x (on the output of a
    sub-layer y itself), `sum` y + residual, or its norm."""

    site: str
    number: int
    steps: tuple[MatmulStep, ...]
    column: int = 0
    reads: Literal["x", "sum"] | Normed = "x"
    gain: float = 1.0
    gate: Gate | None = None


@dataclass(frozen=True, eq=False)
class AddedBias:
    """y += bias - replaced, in the columns of y from `column` on; `replaced` is what the frozen map has added."""

    site: str
    number: int
    bias: Tensor
    replaced: Tensor | None = None
    column: int = 0


@dataclass(frozen=True, eq=False)
class NormWeights:
    """The weight and bias [hidden] of norm `index`; None is the backbone's own."""

    index: int
    weight: Tensor | None
    bias: Tensor | None


@dataclass(frozen=True, eq=False)
class PrefixKeys:
    """Extra keys and values [heads, prefix, head size] of attention `number`, both times the gate."""

    number: int
    keys: Tensor
    values: Tensor
    gate: Gate | None = None


@dataclass(frozen=True, eq=False)
class PromptRows:
    """Embeddings [prompt, hidden] in the place of a row's first tokens."""

    weight: Tensor


Op = FusedMatmul | AddedBias | NormWeights | PrefixKeys | PromptRows


class Program:
    """All ops of an adapter, by where they act. `depth` is above all numbers of layers, blocks and attentions."""

    def __init__(self, ops: Iterable[Op], depth: int) -> None:
        self.depth = depth
        self.placed: dict[Place, list[FusedMatmul | AddedBias]] = {}
        self.norms: dict[int, NormWeights] = {}
        self.prefixes: dict[int, PrefixKeys] = {}
        self.prompt: PromptRows | None = None
        for op in ops:
            self._take(op)

    def _take(self, op: Op) -> None:
        match op:
            case FusedMatmul() | AddedBias():
                self.placed.setdefault((op.site, op.number), []).append(op)
            case NormWeights():
                self.norms[op.index] = op
            case PrefixKeys():
                self.prefixes[op.number] = op
            case PromptRows():
                self.prompt = op


def at(tensor: Tensor, flat: Tensor | None) -> Tensor:
    """A tensor of an op, of the adapter whose weights `flat` [elements] holds; of all adapters of a stack [adapters,
    elements] with that leading dimension."""
    if flat is None or not tensor.is_meta:
        return tensor
    start = flat.storage_offset() + tensor.storage_offset()
    if flat.dim() == 1:
        return flat.as_strided(tensor.shape, tensor.stride(), start)
    return flat.as_strided((len(flat), *tensor.shape), (flat.stride(0), *tensor.stride()), start)
