"""What positions add to the scores of attention in DeBERTa (He et al. 2021, section 3) and in MPNet (Song et al. 2020).

In DeBERTa there are queries and keys of distances besides those of tokens. Scores add a token's query times a
distance's key, and a distance's query times a token's key. MPNet has a bias by distance, as T5, which all layers share.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from peltier_backbone.attention.relative import RelativeBias, RowBias


def distance_rows(width: int, buckets: int, reach: int) -> Tensor:
    """The rows of the table of distances for distances 1 - `width` to `width` - 1 (query - key), [2 * width - 1]. With
    `buckets`, distances beyond half of them share logarithmic buckets up to `reach`; without (0), a table has a row for
    each distance below `reach`."""
    distance = torch.arange(1 - width, width)
    span = buckets or reach
    if buckets:
        half = buckets // 2
        # The order of operations is that of transformers: another order may round to another bucket at a bucket's edge.
        far = torch.where(distance.abs() < half, torch.tensor(half - 1), distance.abs())
        steps = torch.log(far / half) / torch.log(torch.tensor((reach - 1) / half)) * (half - 1)
        bucket = torch.where(far <= half, distance.float(), (torch.ceil(steps) + half) * distance.sign())
        distance = bucket.long()
    return (distance + span).clamp(0, 2 * span - 1)


@dataclass(frozen=True)
class DisentangledPositions:
    """The `queries` and `keys` of the distances between tokens, each [layers, heads, head size, distances] and
    contiguous. The middle column is that of distance 0; columns of `keys` go by key - query, those of `queries` by
    query - key. Either is None if the model does not have these scores. `scale` is what all products are multiplied
    by."""

    queries: Tensor | None
    keys: Tensor | None
    scale: float

    def tables(self) -> Iterator[tuple[str, Tensor]]:
        """Those that the model has, by name."""
        for name, table in (("distance_queries", self.queries), ("distance_keys", self.keys)):
            if table is not None:
                yield name, table

    def line(self, width: int) -> None:
        """There are no biases."""
        self._check(width)

    def scores(self, width: int) -> "DisentangledScores":
        """The scores of a batch whose rows have up to `width` tokens."""
        self._check(width)
        return DisentangledScores(self, width)

    def _check(self, width: int) -> None:
        """Tables have no distances beyond those of the longest row."""
        assert all(width <= table.shape[-1] // 2 + 1 for _, table in self.tables()), "the tokenizer cuts rows"


@dataclass(frozen=True)
class DisentangledScores:
    """Implements `PositionScores`."""

    positions: DisentangledPositions
    width: int

    @property
    def scale(self) -> float:
        return self.positions.scale

    def between(self, layer: int, query: Tensor, key: Tensor) -> Tensor:
        num_queries, num_keys = query.shape[-2], key.shape[-2]
        places = self._places[:num_queries, :num_keys]
        total = query.new_zeros(())
        if self.positions.keys is not None:
            total = total + _gather(query * self.scale, self.positions.keys[layer], places, self.width)
        if self.positions.queries is not None:
            own = _gather(key * self.scale, self.positions.queries[layer], places.t().neg(), self.width)
            total = total + own.transpose(-1, -2)
        return total

    @cached_property
    def _places(self) -> Tensor:
        """key - query, [width (queries), width (keys)]."""
        places = torch.arange(self.width)
        table = self.positions.keys if self.positions.keys is not None else self.positions.queries
        assert table is not None, "a model without either has no such positions"
        return (places - places[:, None]).to(table.device)


def _gather(x: Tensor, table: Tensor, places: Tensor, width: int) -> Tensor:
    """The products of x [..., heads, tokens, size] with the columns of `table` [heads, size, distances] that are
    `places` [tokens, others] from its middle, [..., heads, tokens, others]. Places are nearer than `width`."""
    middle = table.shape[-1] // 2
    near = table[..., middle + 1 - width : middle + width]
    products = torch.matmul(x, near.to(x.dtype))
    index = (places + width - 1).expand(*products.shape[:-2], *places.shape)
    return products.gather(-1, index)


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
