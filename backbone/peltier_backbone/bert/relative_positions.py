"""The relative positions of MPNet: a bias by distance, as in T5, which all layers share (Song et al. 2020)."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from peltier_backbone.attention.relative import RelativeBias, RowBias


@dataclass(frozen=True)
class RelativePositions:
    """The `bias` that is added to scaled scores; `scale` is what products of queries and keys are multiplied by."""

    bias: RelativeBias
    scale: float

    def tables(self) -> Iterator[tuple[str, Tensor]]:
        """The biases by distance."""
        yield ("bias", self.bias.line)

    def line(self, width: int) -> Tensor:
        """See `LineBias`."""
        return self.bias.line_around(width)

    def scores(self, width: int) -> "BiasScores":
        """The scores of a batch whose rows have up to `width` tokens."""
        return BiasScores(RowBias(self.bias, width), self.scale)


@dataclass(frozen=True)
class BiasScores:
    """Implements `PositionScores`."""

    rows: RowBias
    scale: float

    def between(self, layer: int, query: Tensor, key: Tensor) -> Tensor:
        return self.rows.square[:, : query.shape[-2], : key.shape[-2]].to(query.dtype)
