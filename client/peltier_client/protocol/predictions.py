"""The forms of a prediction on the wire, one for each kind of task."""

from typing import Annotated, Literal

from pydantic import Field

from peltier_client.protocol.wire import ResponseModel


def is_none(value: object) -> bool:
    """Whether a field is left out of an answer."""
    return value is None


# For each part of the adapter one value per layer; null for a layer without that part.
Gates = dict[str, list[float | None]]
OptionalGates = Annotated[Gates | None, Field(exclude_if=is_none)]
FinishReason = Literal["stop", "length"]


class ClassificationPrediction(ResponseModel):
    """The best label; `scores` are probabilities, or logits with `raw_scores`, in the manifest's label order."""

    label: str
    score: float
    scores: dict[str, float]
    gates: OptionalGates = None


class MultilabelPrediction(ResponseModel):
    """Every label that applies; `scores` are independent probabilities in the manifest's label order."""

    labels: list[str]
    scores: dict[str, float]
    gates: OptionalGates = None


class RegressionPrediction(ResponseModel):
    """A number on the scale of the training data."""

    value: float
    gates: OptionalGates = None


class RankingPrediction(ResponseModel):
    """The relevance of a document for a query, between 0 and 1; with `raw_scores` the output of the head."""

    score: float
    gates: OptionalGates = None


class EmbeddingPrediction(ResponseModel):
    """A vector, whose cosine with those of other texts says how similar they are."""

    embedding: list[float]
    gates: OptionalGates = None


class TextPrediction(ResponseModel):
    """A generated text. `finish_reason` is "stop" at its end and "length" at `max_new_tokens`.

    `score` is the geometric mean of the tokens' probabilities, or with `raw_scores` the sum of their logarithms. If the
    text is one of the task's labels, `label` or `value` is that label.
    """

    text: str
    score: float
    finish_reason: FinishReason
    label: Annotated[str | None, Field(exclude_if=is_none)] = None
    value: Annotated[float | None, Field(exclude_if=is_none)] = None


class Entity(ResponseModel):
    """A part of the input: its characters from `start` up to `end`, its text, its label and the label's probability."""

    start: int
    end: int
    text: str
    label: str
    score: float


class EntitiesPrediction(ResponseModel):
    """The entities of a text, in order. If the text was truncated, the labels end at character `truncated_at`; an
    entity that ends there may be longer."""

    entities: list[Entity]
    truncated_at: Annotated[int | None, Field(exclude_if=is_none)] = None
    gates: OptionalGates = None


class SpanPrediction(ResponseModel):
    """The part of a context that answers a question: its text and its characters from `start` up to `end`. No answer is
    an empty text with `start` and `end` 0. `score` is a probability, or with `raw_scores` a sum of logits."""

    answer: str
    start: int
    end: int
    score: float
    gates: OptionalGates = None


AnyPrediction = (
    ClassificationPrediction
    | MultilabelPrediction
    | RegressionPrediction
    | RankingPrediction
    | EmbeddingPrediction
    | TextPrediction
    | EntitiesPrediction
    | SpanPrediction
)
