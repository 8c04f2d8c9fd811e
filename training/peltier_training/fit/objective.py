"""The training objectives: a class for each kind of outputs, and AdaMix's consistency between two passes."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from peltier_adapters.spec.tasks import TaskType
from torch import Tensor
from torch.nn import functional as F

from peltier_training.config.run import Run
from peltier_training.data.dataset import IGNORED
from peltier_training.data.rows import NO_TOKEN
from peltier_training.models.sources import consistency_loss

DEFAULT_TEMPERATURE = 0.05
DEFAULT_SPARSE_TEMPERATURE = 1.0
DEFAULT_FLOPS_WEIGHT = 1e-3


class Objective(ABC):
    """A task's loss, and AdaMix's consistency between two passes, which only outputs that are distributions have."""

    consistency: float = 0.0  # the weight of the consistency loss; 0 disables it

    @abstractmethod
    def task_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The mean loss of one pass."""

    def divergence(self, logits: Tensor, other: Tensor, lengths: Sequence[int]) -> Tensor:
        """The divergence of two passes over rows of these lengths in tokens."""
        raise AssertionError(f"{type(self).__name__} has no consistency loss")

    def num_terms(self, labels: Tensor, lengths: Sequence[int]) -> tuple[int, int] | None:
        """The numbers of terms of which the loss and the divergence of such rows are means; None if a term depends on
        several rows."""
        return None


@dataclass(frozen=True)
class HeadObjective(Objective):
    """The objective of a head's logits [rows, outputs], or [tokens, outputs] of a head of tokens."""

    type: TaskType
    consistency: float = 0.0

    def task_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        match self.type:
            case "classification":
                return F.cross_entropy(logits, labels)
            case "multilabel":
                return F.binary_cross_entropy_with_logits(logits, labels)
            case "regression":
                return F.mse_loss(logits[:, 0], labels)
            case "token-classification":
                return tag_loss(logits, labels)
        raise AssertionError("text2text has no head")

    def divergence(self, logits: Tensor, other: Tensor, lengths: Sequence[int]) -> Tensor:
        return consistency_loss(logits, other, multilabel=self.type == "multilabel")

    def num_terms(self, labels: Tensor, lengths: Sequence[int]) -> tuple[int, int]:
        if self.type == "token-classification":
            return int((labels >= 0).sum()), sum(lengths)
        return len(lengths), len(lengths)


def create_objective(run: Run, consistency: float) -> Objective:
    """The objective of a task with a head. `consistency` is the weight of AdaMix's loss."""
    match run.task_type:
        case "ranking":
            return RankingObjective(run.ranking_loss)
        case "embedding":
            return EmbeddingObjective(run.embedding.dimensions, run.embedding.temperature or DEFAULT_TEMPERATURE)
        case "sparse-embedding":
            weight = run.embedding.flops_weight
            return SparseObjective(
                DEFAULT_FLOPS_WEIGHT if weight is None else weight,
                run.embedding.temperature or DEFAULT_SPARSE_TEMPERATURE,
            )
        case "multi-vector-embedding":
            return MaxSimObjective(run.embedding.temperature or DEFAULT_TEMPERATURE)
        case "span":
            return SpanObjective(consistency)
    # A single number is not a distribution (docs/methods/adamix.md).
    return HeadObjective(run.task_type, 0.0 if run.task_type == "regression" else consistency)


@dataclass(frozen=True)
class TextObjective(Objective):
    """The objective of next-token logits [tokens, vocabulary] over the target texts with their end tokens.

    The cross-entropy is a mean over tokens. A text's divergence is the sum over its tokens, and a batch's
    the mean over rows, as with a head. (AdaMix's code has the mean over tokens, times 100.)
    """

    consistency: float = 0.0

    def task_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits.float(), labels)

    def divergence(self, logits: Tensor, other: Tensor, lengths: Sequence[int]) -> Tensor:
        return consistency_loss(logits.float(), other.float(), rows=len(lengths))

    def num_terms(self, labels: Tensor, lengths: Sequence[int]) -> tuple[int, int]:
        return len(labels), len(lengths)


@dataclass(frozen=True)
class RankingObjective(Objective):
    """The objective of scores [rows, 1]. `labels` [rows, 2] are the relevance of each document and the number of its
    query (`Labels.targets`).

    `listwise` is ListNet's top-one cross-entropy (Cao et al. 2007): the share of each document in its query's relevance
    against the softmax of the query's scores. `pairwise` is RankNet's (Burges et al. 2005): log(1 + exp(s_j - s_i)) for
    each pair of a query's documents of which i is more relevant than j. Queries of a batch, or pairs, count equally.
    """

    loss: str

    def task_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        scores, relevance, queries = logits[:, 0], labels[:, 0], labels[:, 1]
        together = queries[:, None] == queries[None, :]
        if self.loss == "pairwise":
            return _pairwise(scores, relevance, together)
        return _listwise(scores, relevance, together)


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


@dataclass(frozen=True)
class EmbeddingObjective(Objective):
    """The objective of the embeddings [pairs, 2, size] of pairs. `labels` are scores [pairs], or the numbers [pairs, 2]
    of the texts of pairs that belong together (`Labels.targets`).

    With scores it is the mean squared error of the cosine (Reimers and Gurevych 2019). Without, it is the multiple
    negatives ranking loss (Henderson et al. 2017): the cross-entropy of each first text's own second text, among all
    second texts of the batch, by cosine over `temperature`. A second text that belongs to the first text in another
    pair of the batch is no negative.

    The loss is the mean over the first `dimensions` values of the embeddings and all values (Matryoshka representation
    learning, Kusupati et al. 2022)."""

    dimensions: Sequence[int] = ()
    temperature: float = DEFAULT_TEMPERATURE

    def task_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        sizes = {*self.dimensions, logits.shape[-1]}
        losses = [self._loss(F.normalize(logits[..., :size], dim=-1), labels) for size in sizes]
        return torch.stack(losses).mean()

    def _loss(self, vectors: Tensor, labels: Tensor) -> Tensor:
        first, second = vectors.unbind(1)
        if labels.dim() == 1:
            return F.mse_loss((first * second).sum(-1), labels)
        return _in_batch(first @ second.T / self.temperature, labels)


@dataclass(frozen=True)
class SparseObjective(Objective):
    """The objective of the logits [pairs, 2, vocabulary] of pairs, whose weights are log(1 + relu(logit)): a ranking
    loss and the FLOPS loss times `flops_weight` (Formal et al. 2021, "SPLADE v2", Eq. 2 to 5).

    The ranking loss is that of `EmbeddingObjective`, by the product of weights over `temperature` in place of the
    cosine. Pairs with scores have the squared error of the cosine. The FLOPS loss is the sum over the vocabulary of the
    squared mean weight of a term (Paria et al. 2020, section 4), of first texts and of second texts."""

    flops_weight: float = DEFAULT_FLOPS_WEIGHT
    temperature: float = DEFAULT_SPARSE_TEMPERATURE

    def task_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        weights = logits.relu().log1p()
        first, second = weights.unbind(1)
        if labels.dim() == 1:
            ranking = F.mse_loss(F.cosine_similarity(first, second), labels)
        else:
            ranking = _in_batch(first @ second.T / self.temperature, labels)
        return ranking + self.flops_weight * weights.mean(0).square().sum()


@dataclass(frozen=True)
class MaxSimObjective(Objective):
    """The objective of the similarities [pairs, pairs] of each first text with each second text (`similarities`): the
    softmax cross-entropy of Khattab and Zaharia (2020, section 3.3), among all second texts of the batch as in
    `EmbeddingObjective`. Pairs with scores have the squared error of their similarity."""

    temperature: float = DEFAULT_TEMPERATURE

    def task_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        if labels.dim() == 1:
            return F.mse_loss(logits.diagonal(), labels)
        return _in_batch(logits / self.temperature, labels)


def _in_batch(scores: Tensor, numbers: Tensor) -> Tensor:
    """The cross-entropy of each first text's own second text by scores [pairs, pairs]. A second text that belongs to
    the first text in another pair is no negative."""
    own = torch.arange(len(numbers), device=numbers.device)
    return F.cross_entropy(scores.masked_fill(_known(numbers), -torch.inf), own)


def _known(numbers: Tensor) -> Tensor:
    """Where the second text of a column belongs to the first text of a row, without the row's own, [pairs, pairs]."""
    first, second = numbers.unbind(1)
    same = (first[:, None] == first[None, :]) | (second[:, None] == second[None, :])
    return same & ~torch.eye(len(numbers), dtype=torch.bool, device=numbers.device)


@dataclass(frozen=True)
class SpanObjective(Objective):
    """The objective of the logits [tokens, 2] of packed rows, back to back: starts and ends are distributions over the
    tokens of a row. `labels` [rows, 3] have the tokens at which an answer starts and ends, and the row's number of
    tokens. Losses are means over rows, starts and ends."""

    consistency: float

    def task_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        rows = torch.split(logits, labels[:, 2].tolist())
        losses = [F.cross_entropy(row.T, places) for row, places in zip(rows, labels[:, :2], strict=True)]
        return torch.stack(losses).mean()

    def divergence(self, logits: Tensor, other: Tensor, lengths: Sequence[int]) -> Tensor:
        pairs = zip(*(torch.split(one, list(lengths)) for one in (logits, other)), strict=True)
        return torch.stack([consistency_loss(row.T, twin.T) for row, twin in pairs]).mean()

    def num_terms(self, labels: Tensor, lengths: Sequence[int]) -> tuple[int, int]:
        return len(lengths), len(lengths)


def tag_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy over the tokens that carry the tag of a word.

    `logits` are [tokens, tags] of packed rows; `labels` [rows, length] are the tags of their tokens, `IGNORED` for
    tokens that carry none and `NO_TOKEN` after the last one.
    """
    tags = labels[labels != NO_TOKEN]
    losses = F.cross_entropy(logits, tags, ignore_index=IGNORED, reduction="sum")
    return losses / (tags != IGNORED).sum().clamp(min=1)
