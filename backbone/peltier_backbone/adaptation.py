"""The points where adapters act on the frozen forward. The backbone knows no method by name.

Tensors are packed: `x` and `y` are [tokens, width]. Implementations may change `y` in place and return it; they must
never change `x` or a backbone weight.
"""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from torch import Tensor

from peltier_backbone.attention import Prefix

Projection = Literal["query_key_value", "attention_output", "intermediate", "output"]
Sublayer = Literal["attention", "ffn"]
Norm = Callable[[Tensor], Tensor]


class Adaptation(Protocol):
    """What one batch adds to the frozen model."""

    @property
    def projections(self) -> frozenset[str]:
        """The projections that `project` changes; the others may run fused."""

    def spans(self, num_rows: int) -> Sequence[tuple[int, int]]:
        """Runs of neighbouring rows that attend together, covering all rows in order."""

    def prefix(self, layer: int, span: int, x: Tensor) -> Prefix | None:
        """Prefix keys and values of a span, given that span's layer input."""

    def project(self, layer: int, site: Projection, x: Tensor, y: Tensor) -> Tensor:
        """The projection's output `y` = frozen map of `x`, adapted (LoRA, biases)."""

    def sublayer(self, layer: int, site: Sublayer, y: Tensor, residual: Tensor) -> Tensor:
        """A sub-layer's output before `y + residual` is normed (bottlenecks)."""

    def norm(self, index: int, x: Tensor, base: Norm) -> Tensor:
        """Norm `index` (0 the embedding's, then two a layer) of `x`, with each row's own weights."""


class NoAdaptation:
    """The bare model."""

    projections: frozenset[str] = frozenset()

    def spans(self, num_rows: int) -> Sequence[tuple[int, int]]:
        return [(0, num_rows)]

    def prefix(self, layer: int, span: int, x: Tensor) -> Prefix | None:
        return None

    def project(self, layer: int, site: Projection, x: Tensor, y: Tensor) -> Tensor:
        return y

    def sublayer(self, layer: int, site: Sublayer, y: Tensor, residual: Tensor) -> Tensor:
        return y

    def norm(self, index: int, x: Tensor, base: Norm) -> Tensor:
        return base(x)


NO_ADAPTATION = NoAdaptation()
