"""The points where adapters act on the frozen forward. The backbone knows no method by name.

Tensors are packed: `x` and `y` are [tokens, width]. Implementations may change `y` in place and return it; they must
never change `x` or a backbone weight.

Blocks, attentions and norms are numbered as in `BackboneConfig`; in BERT a block and its attention are the layer. While
an encoder-decoder decodes, each token is a row of its own: what is said of rows holds for decoder tokens.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

from torch import Tensor

from peltier_backbone.attention import Prefix
from peltier_backbone.native.program import PlacedPrefixes
from peltier_backbone.norm import Norm

Projection = Literal[
    "query_key_value", "query", "key_value", "attention_output", "intermediate", "output", "lm_head"
]  # "query" and "key_value" are cross-attention's, fused elsewhere
Sublayer = Literal["attention", "ffn"]


class Adaptation(Protocol):
    """What one batch adds to the frozen model."""

    @property
    def projections(self) -> frozenset[str]:
        """The projections that `project` changes; the others may run fused."""

    def spans(self, num_rows: int) -> Sequence[tuple[int, int]]:
        """Runs of neighbouring rows that attend together, covering all rows in order."""

    def embed(self, x: Tensor) -> Tensor:
        """T5's encoder embeddings `x`, which may be changed in place (soft prompts in the place of their tokens)."""

    def prefix(self, attention: int, span: int, x: Tensor) -> Prefix | PlacedPrefixes | None:
        """Prefix keys and values of a span, whose queries are made of x. No position is shifted and, in T5, the
        relative bias of a prefix key is 0. Placed ones are for BERT alone."""

    def project(self, number: int, site: Projection, x: Tensor, y: Tensor) -> Tensor:
        """The projection's output `y` = frozen map of `x`, adapted (LoRA, biases).

        `number` is the block of "intermediate" and "output", 0 for "lm_head", else the attention.
        """

    def sublayer(self, block: int, site: Sublayer, y: Tensor, residual: Tensor) -> Tensor:
        """A sub-layer's output before `y + residual` (bottlenecks); BERT norms that sum, T5 does not.

        Never called after cross-attention (docs/methods.md#sites).
        """

    def norm(self, index: int, x: Tensor, base: Norm, residual: Tensor | None = None) -> Tensor:
        """Norm `index` of `x`, or of `x` + `residual`, with each row's own weights; in the latter case `x` may be
        changed in place."""


class NoAdaptation:
    """The bare model."""

    projections: frozenset[str] = frozenset()

    def spans(self, num_rows: int) -> Sequence[tuple[int, int]]:
        return [(0, num_rows)]

    def embed(self, x: Tensor) -> Tensor:
        return x

    def prefix(self, attention: int, span: int, x: Tensor) -> Prefix | PlacedPrefixes | None:
        return None

    def project(self, number: int, site: Projection, x: Tensor, y: Tensor) -> Tensor:
        return y

    def sublayer(self, block: int, site: Sublayer, y: Tensor, residual: Tensor) -> Tensor:
        return y

    def norm(self, index: int, x: Tensor, base: Norm, residual: Tensor | None = None) -> Tensor:
        return base(x, residual)


NO_ADAPTATION = NoAdaptation()
