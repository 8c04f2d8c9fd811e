"""The operations that adapters consist of.

An op's tensors are those of one adapter, or they are on the meta device and stand for those of any adapter of a
signature. A meta tensor is a view of a flat tensor, and `at` finds it at the same offset in each adapter's own flat
tensor. Weights are in float32 and multiply from the right, x [tokens, in] @ W [in, out].
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from peltier_backbone.checkpoint.config import BackboneConfig
from peltier_backbone.linear.activation import Activation
from peltier_backbone.linear.norm import Norm
from torch import Tensor

# The sites of ops: after a frozen projection (an `adaptation.Projection`), on the input of the second feed-forward map,
# on the output of a sub-layer, on the keys and values of an attention, on the scores of the pooler, and on one vector
# for each row or token after the last layer. A head with a norm has two sites: its dense layer, and its output layer,
# which reads the norm. `vocabulary` is on the logits of a row for all terms.
SITES = (
    "query_key_value", "query", "key_value", "attention_output", "intermediate", "activated", "output", "lm_head",
    "attention", "ffn", "prefix", "pooler", "head", "head_dense", "normed_head", "vocabulary",
)  # fmt: skip
_AFTER_BLOCKS = ("lm_head", "pooler", "head", "head_dense", "normed_head", "vocabulary")
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
    """One number for each row: the mean over the row's tokens of sigmoid(x w + b), w [in] and b []. With a `column` it
    is that column of the softmax over the means of relu(x w + b), w [in, 2] and b [2]. It is recorded as `label` of
    layer `number`.
    """

    label: str
    number: int
    weight: Tensor
    bias: Tensor
    column: int | None = None


@dataclass(frozen=True, eq=False)
class Normed:
    """Norm number `index` of y + residual, with the adapter's own weights if it has some, else with those of `base`."""

    index: int
    base: Norm


@dataclass(frozen=True, eq=False)
class FusedMatmul:
    """y += gain * gate * steps(input), in the columns of y from `column` on. The input (`reads`) is x (which is y on
    the output of a sub-layer), y + residual ("sum"), or a norm of that sum."""

    site: str
    number: int
    steps: tuple[MatmulStep, ...]
    column: int = 0
    reads: Literal["x", "sum"] | Normed = "x"
    gain: float = 1.0
    gate: Gate | None = None


@dataclass(frozen=True, eq=False)
class AddedBias:
    """y += bias - replaced, in the columns of y from `column` on; `replaced` is the bias that the frozen map added."""

    site: str
    number: int
    bias: Tensor
    replaced: Tensor | None = None
    column: int = 0


@dataclass(frozen=True, eq=False)
class Scaled:
    """y *= factor, in the columns of y from `column` on. It acts before the other ops of its place."""

    site: str
    number: int
    factor: Tensor
    column: int = 0


@dataclass(frozen=True, eq=False)
class NormWeights:
    """The weight and bias [hidden] of norm `index`; None stands for the backbone's own."""

    index: int
    weight: Tensor | None
    bias: Tensor | None


@dataclass(frozen=True, eq=False)
class PrefixKeys:
    """Extra keys and values [heads, prefix, head size] of attention `number`, both multiplied by the gate."""

    number: int
    keys: Tensor
    values: Tensor
    gate: Gate | None = None


@dataclass(frozen=True, eq=False)
class PromptRows:
    """Embeddings [prompt, hidden] that replace those of a row's first tokens."""

    weight: Tensor


PlacedOp = FusedMatmul | AddedBias | Scaled
Op = PlacedOp | NormWeights | PrefixKeys | PromptRows


class Program:
    """All ops of an adapter by place. Every layer, block and attention number is below `depth`."""

    def __init__(self, ops: Iterable[Op], depth: int) -> None:
        self.depth = depth
        self.placed: dict[Place, list[PlacedOp]] = {}
        self.norms: dict[int, NormWeights] = {}
        self.prefixes: dict[int, PrefixKeys] = {}
        self.prompt: PromptRows | None = None
        for op in ops:
            self._take(op)

    def first_block(self, config: BackboneConfig) -> int:
        """The first block of an encoder in which ops act: -1 if they act before the blocks, and the number of blocks if
        they act in none."""
        numbers = [number for site, number in self.placed if site not in _AFTER_BLOCKS]
        # The final norm counts as part of the last block.
        norms = [min(config.place_norm(index), config.num_layers - 1) for index in self.norms]
        return min([*numbers, *self.prefixes, *norms, *([-1] if self.prompt else [])], default=config.num_layers)

    def _take(self, op: Op) -> None:
        match op:
            case FusedMatmul() | AddedBias():
                self.placed.setdefault((op.site, op.number), []).append(op)
            case Scaled():
                self.placed.setdefault((op.site, op.number), []).insert(0, op)
            case NormWeights():
                self.norms[op.index] = op
            case PrefixKeys():
                self.prefixes[op.number] = op
            case PromptRows():
                self.prompt = op


def at(tensor: Tensor, flat: Tensor | None) -> Tensor:
    """A tensor of an op with the values of the adapter whose weights are `flat` [elements]. For a stack [adapters,
    elements] it has the values of all its adapters, with a leading dimension [adapters]."""
    if flat is None or not tensor.is_meta:
        return tensor
    start = flat.storage_offset() + tensor.storage_offset()
    if flat.dim() == 1:
        return flat.as_strided(tensor.shape, tensor.stride(), start)
    return flat.as_strided((len(flat), *tensor.shape), (flat.stride(0), *tensor.stride()), start)
