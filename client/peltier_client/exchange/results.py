"""Predictions as the clients return them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

from peltier_client.protocol import (
    AdapterRef,
    BatchInfo,
    Entity,
    FinishReason,
    Gates,
    Provenance,
    ResponseModel,
    Tier,
    Timings,
    Usage,
)


class Prediction(ResponseModel):
    """The prediction for one input. The task decides which fields are set; the others are None.

    Classification sets `label`, `score` and `scores`. Multilabel sets `labels` and `scores`. Regression sets `value`,
    ranking `score`, embedding `embedding`. A span sets `answer`, `start`, `end` and `score`, token classification
    `entities`, and `truncated_at` if the text was truncated. Generation sets `text`,
    `score` and `finish_reason`, and `label` or `value` if the text is one of the task's labels.
    """

    label: str | None = None
    score: float | None = None
    scores: dict[str, float] | None = None
    labels: list[str] | None = None
    value: float | None = None
    embedding: list[float] | None = None
    answer: str | None = None
    start: int | None = None
    end: int | None = None
    entities: list[Entity] | None = None
    truncated_at: int | None = None
    text: str | None = None
    finish_reason: FinishReason | None = None
    gates: Gates | None = None


class PredictionBody(Provenance):
    """The response body, with every kind of prediction in one class."""

    predictions: list[Prediction]


@dataclass(frozen=True)
class Predictions(Sequence[Prediction]):
    """One prediction per input, in the order of the inputs. `body` is the whole response."""

    body: PredictionBody

    @property
    def task(self) -> str:
        """The task of the request."""
        return self.body.task

    @property
    def adapter(self) -> AdapterRef:
        """The adapter version that answered."""
        return self.body.adapter

    @property
    def tier(self) -> Tier | None:
        """Where the request found the adapter; None if the server does not say it."""
        return self.body.tier

    @property
    def usage(self) -> Usage:
        """The charged tokens; `completion_tokens` counts those of generated texts, `truncated_inputs` inputs."""
        return self.body.usage

    @property
    def timings_ms(self) -> Timings:
        """The server's time by phase, in milliseconds."""
        return self.body.timings_ms

    @property
    def batch(self) -> BatchInfo:
        """The batch that computed the request."""
        return self.body.batch

    @overload
    def __getitem__(self, index: int) -> Prediction: ...
    @overload
    def __getitem__(self, index: slice) -> list[Prediction]: ...
    def __getitem__(self, index: int | slice) -> Prediction | list[Prediction]:
        return self.body.predictions[index]

    def __len__(self) -> int:
        return len(self.body.predictions)
