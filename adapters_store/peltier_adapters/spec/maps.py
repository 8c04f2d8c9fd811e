"""Parametrisations of a bottleneck's linear maps: dense, low-rank, PHM and LPHM. Imports no torch.

Maps multiply from the right: `x [tokens, in] @ W [in, out]`.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

TensorShape = tuple[int, ...]
Shapes = dict[str, TensorShape]

MAX_SIZE = 4096
Size = Annotated[int, Field(ge=1, le=MAX_SIZE)]


class Spec(BaseModel):
    """A frozen value of the manifest; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def is_none(value: object) -> bool:
    """For fields that a manifest without them does not mention, so that older releases read it too."""
    return value is None


class DenseMap(Spec):
    """W [in, out]: the Houlsby and Pfeiffer adapters."""

    kind: Literal["dense"] = "dense"

    def shapes(self, before: int, after: int) -> Shapes:
        return {"weight": (before, after)}


class LowRankMap(Spec):
    """W = left right, rank r (Adapter-LowRank, docs/methods/low-rank.md: a matrix product)."""

    kind: Literal["lowrank"] = "lowrank"
    rank: Size = 1

    def shapes(self, before: int, after: int) -> Shapes:
        return {"left": (before, self.rank), "right": (self.rank, after)}


class PhmMap(Spec):
    """W = sum_i rule_i (x) weight_i; every map has its own rule (Compacter paper, Eq. 3-4)."""

    kind: Literal["phm"] = "phm"
    n: Size = 4

    def shapes(self, before: int, after: int) -> Shapes:
        return {"weight": (self.n, before // self.n, after // self.n), "rule": (self.n, self.n, self.n)}


class LphmMap(Spec):
    """W = sum_i rule_i (x) (left_i right_i); all maps of the adapter share one rule (Eq. 5-6)."""

    kind: Literal["lphm"] = "lphm"
    n: Size = 4
    rank: Size = 1

    def shapes(self, before: int, after: int) -> Shapes:
        return {"left": (self.n, before // self.n, self.rank), "right": (self.n, self.rank, after // self.n)}


class FoldedLphmMap(Spec):
    """An LPHM map as it is served: the rule is part of the smaller factor, so that W = left right over blocks of the
    wider side (docs/methods/compacter.md). Only `served_parts` makes it; no artifact has it.

    If the input is wider, `left` acts on each of the n input blocks. If the output is wider, `right` computes each of
    the n output blocks, and its last n rows are the map's bias.
    """

    kind: Literal["folded_lphm"] = "folded_lphm"
    n: Size
    rank: Size

    def contracts(self, before: int, after: int) -> bool:
        """Whether the input is at least as wide as the output."""
        return before >= after

    def shapes(self, before: int, after: int) -> Shapes:
        n, inner = self.n, self.n * self.rank
        if self.contracts(before, after):
            return {"left": (before // n, inner), "right": (n * inner, after)}
        return {"left": (before, n * (inner + n)), "right": (inner + n, after // n)}


MapSpec = Annotated[DenseMap | LowRankMap | PhmMap | LphmMap, Field(discriminator="kind")]
# Maps of a bottleneck on a device.
ServedMapSpec = MapSpec | FoldedLphmMap
