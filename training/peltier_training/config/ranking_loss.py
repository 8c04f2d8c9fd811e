"""The losses of a ranking by name; imports no torch."""

from typing import Literal, get_args

RankingLoss = Literal["listwise", "pairwise"]
RANKING_LOSSES: tuple[RankingLoss, ...] = get_args(RankingLoss)
DEFAULT_RANKING_LOSS: RankingLoss = "listwise"
