"""The training objective."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from peltier_adapters.spec.tasks import TaskType
from torch import Tensor
from torch.nn import functional as F

from peltier_training.config.run import Run
from peltier_training.fit.embedding_objective import DEFAULT_TEMPERATURE, EmbeddingObjective
from peltier_training.fit.ranking_objective import RankingObjective
from peltier_training.fit.span_objective import SpanObjective
from peltier_training.fit.tag_objective import tag_loss
from peltier_training.models.experts import consistency_loss


class Objective(Protocol):
    """A task's loss, and AdaMix's consistency between two passes."""

    @property
    def consistency(self) -> float:
        """The weight of the consistency loss; 0 disables it."""

    def task_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The mean loss of one pass."""

    def divergence(self, logits: Tensor, other: Tensor, lengths: Sequence[int]) -> Tensor:
        """The divergence of two passes over rows of these lengths in tokens."""


@dataclass(frozen=True)
class HeadObjective:
    """The objective of a head's logits [rows, outputs], or [tokens, outputs] of a head of tokens."""

    type: TaskType
    weight: float

    @property
    def consistency(self) -> float:
        """Regression has no divergence, because a single number is not a distribution (docs/methods/adamix.md)."""
        return 0.0 if self.type == "regression" else self.weight

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


def create_objective(run: Run, consistency: float) -> Objective:
    """The objective of a task with a head. `consistency` is the weight of AdaMix's loss."""
    match run.task_type:
        case "ranking":
            return RankingObjective(run.ranking_loss)
        case "embedding":
            return EmbeddingObjective(run.embedding.dimensions, run.embedding.temperature or DEFAULT_TEMPERATURE)
        case "span":
            return SpanObjective(consistency)
    return HeadObjective(run.task_type, consistency)


@dataclass(frozen=True)
class TextObjective:
    """The objective of next-token logits [tokens, vocabulary] over the target texts with their end tokens.

    The cross-entropy is a mean over tokens. A text's divergence is the sum over its tokens, and a batch's
    the mean over rows, as with a head. (AdaMix's code has the mean over tokens, times 100.)
    """

    consistency: float

    def task_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits.float(), labels)

    def divergence(self, logits: Tensor, other: Tensor, lengths: Sequence[int]) -> Tensor:
        return consistency_loss(logits.float(), other.float(), rows=len(lengths))
