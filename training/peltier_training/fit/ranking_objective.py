"""The losses of ranking: over the documents of a query, not over single documents."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class RankingObjective:
    """The objective of scores [rows, 1]. `labels` [rows, 2] are the relevance of each document and the number of its
    query (`Labels.targets`).

    `listwise` is ListNet's top-one cross-entropy (Cao et al. 2007): the share of each document in its query's relevance
    against the softmax of the query's scores. `pairwise` is RankNet's (Burges et al. 2005): log(1 + exp(s_j - s_i)) for
    each pair of a query's documents of which i is more relevant than j. Queries of a batch, or pairs, count equally.
    """

    loss: str
    consistency: float = 0.0  # a single number is not a distribution

    def task_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        scores, relevance, queries = logits[:, 0], labels[:, 0], labels[:, 1]
        together = queries[:, None] == queries[None, :]
        if self.loss == "pairwise":
            return _pairwise(scores, relevance, together)
        return _listwise(scores, relevance, together)

    def divergence(self, logits: Tensor, other: Tensor, lengths: Sequence[int]) -> Tensor:
        raise AssertionError("a ranking has no consistency loss")


def _pairwise(scores: Tensor, relevance: Tensor, together: Tensor) -> Tensor:
    better = together & (relevance[:, None] > relevance[None, :])
    losses = F.softplus(scores[None, :] - scores[:, None])
    # Without a pair, as in a batch of one document, this is 0.
    return torch.where(better, losses, 0.0).sum() / better.sum().clamp(min=1)


def _listwise(scores: Tensor, relevance: Tensor, together: Tensor) -> Tensor:
    totals = torch.where(together, relevance[None, :], 0.0).sum(1)
    logsums = torch.where(together, scores[None, :], -torch.inf).logsumexp(1)
    shares = torch.where(totals > 0, relevance / totals.clamp(min=torch.finfo(totals.dtype).tiny), 0.0)
    # The shares of a query add up to 1, so their sum is the number of queries that have a relevant document.
    return -(shares * (scores - logsums)).sum() / shares.sum().clamp(min=1)
