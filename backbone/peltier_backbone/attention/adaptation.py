"""The points where adapters act on the frozen forward pass. The backbone knows no adapter method by name.

Tensors are packed: `x` and `y` are [tokens, width]. Implementations may change `y` in place and return it; they must
never change `x` or a backbone weight.

Blocks, attentions and norms are numbered as in `BackboneConfig`; in BERT a block and its attention have the number of
their layer. While an encoder-decoder decodes, each decoder token is one row.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from torch import Tensor

from peltier_backbone.linear.norm import Norm

Projection = Literal[
    "query_key_value", "query", "key_value", "attention_output", "intermediate", "activated", "output", "lm_head"
]  # "query" and "key_value" are cross-attention's; self-attention fuses them. "activated" is the input of "output"
Sublayer = Literal["attention", "ffn"]


class Prefix(NamedTuple):
    """Extra keys and values in front of each row of a span: [rows, heads, prefix, head size]."""

    keys: Tensor
    values: Tensor


class Adaptation(Protocol):
    """What one batch adds to the frozen model."""

    def spans(self, num_rows: int) -> Sequence[tuple[int, int]]:
        """Runs of neighbouring rows that attend together, covering all rows in order."""

    def embed(self, x: Tensor) -> Tensor:
        """The embeddings `x` of an encoder that has no norm of them, T5's or EuroBERT's; T5's with soft prompts instead
        of placeholder tokens. It may change `x` in place."""

    def prefix(self, attention: int, span: int, x: Tensor) -> Prefix | None:
        """Prefix keys and values of a span, whose queries are computed from `x`; None if it has no prefix. A prefix
        shifts no position, and in T5 the relative bias of a prefix key is 0."""

    def project(self, number: int, site: Projection, x: Tensor, y: Tensor) -> Tensor:
        """The adapted output of a projection (LoRA, biases, scales); `y` is the output of the frozen map of `x`. At
        "activated" both are the activated states of a feed-forward layer.

        `number` is the block for "intermediate", "activated" and "output", 0 for "lm_head", and the attention for all
        others.
        """

    def sublayer(self, block: int, site: Sublayer, y: Tensor, residual: Tensor) -> Tensor:
        """The adapted output `y` of a sub-layer (bottlenecks). The model then adds `residual`; BERT norms the sum.

        The model never calls it after cross-attention (docs/methods.md#sites).
        """

    def norm(self, index: int, x: Tensor, base: Norm, residual: Tensor | None = None) -> Tensor:
        """Norm `index` of `x`, or of `x` + `residual`, with each row's own weights. It may change `x` in place if a
        residual is given."""


class NoAdaptation:
    """An adaptation that changes nothing."""

    def spans(self, num_rows: int) -> Sequence[tuple[int, int]]:
        return [(0, num_rows)]

    def embed(self, x: Tensor) -> Tensor:
        return x

    def prefix(self, attention: int, span: int, x: Tensor) -> Prefix | None:
        return None

    def project(self, number: int, site: Projection, x: Tensor, y: Tensor) -> Tensor:
        return y

    def sublayer(self, block: int, site: Sublayer, y: Tensor, residual: Tensor) -> Tensor:
        return y

    def norm(self, index: int, x: Tensor, base: Norm, residual: Tensor | None = None) -> Tensor:
        return base(x, residual)


NO_ADAPTATION = NoAdaptation()
