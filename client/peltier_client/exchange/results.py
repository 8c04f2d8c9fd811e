"""Predictions as callers see them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

from peltier_client.protocol import (
    AdapterRef,
    BatchInfo,
    FinishReason,
    Gates,
    Provenance,
    ResponseModel,
    Timings,
    Usage,
)


class Prediction(ResponseModel):
    """The answer to one input. Which fields are set depends on the task; the others are None.

    Classification sets `label`, `score` and `scores`; multilabel `labels` and `scores`; regression `value`; generated
    text `text`, `score` and `finish_reason`, and `label` or `value` where the text is one of the task's labels.
    """

    label: str | None = None
    score: float | None = None
    scores: dict[str, float] | None = None
    labels: list[str] | None = None
    value: float | None = None
    text: str | None = None
    finish_reason: FinishReason | None = None
    gates: Gates | None = None


class PredictionBody(Provenance):
    """The answer as received, with every kind of prediction read into the one class."""

    predictions: list[Prediction]


@dataclass(frozen=True)
class Predictions(Sequence[Prediction]):
    """One prediction per input, in the order asked, and how they came about. `body` is the whole answer."""

    body: PredictionBody

    @property
    def task(self) -> str:
        """The task that was asked."""
        return self.body.task

    @property
    def adapter(self) -> AdapterRef:
        """The adapter version that answered."""
        return self.body.adapter

    @property
    def usage(self) -> Usage:
        """What the request is accounted for, in tokens; `completion_tokens` are those of generated texts.

        `truncated_inputs` is how many inputs were longer than the task takes.
        """
        return self.body.usage

    @property
    def timings_ms(self) -> Timings:
        """Where the server's time went, in milliseconds."""
        return self.body.timings_ms

    @property
    def batch(self) -> BatchInfo:
        """The batch that the request was computed in."""
        return self.body.batch

    @overload
    def __getitem__(self, index: int) -> Prediction: ...
    @overload
    def __getitem__(self, index: slice) -> list[Prediction]: ...
    def __getitem__(self, index: int | slice) -> Prediction | list[Prediction]:
        return self.body.predictions[index]

    def __len__(self) -> int:
        return len(self.body.predictions)
