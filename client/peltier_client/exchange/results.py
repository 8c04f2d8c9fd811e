"""Predictions as the clients return them, and the reader of the events of a streamed text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

from httpx2 import ServerSentEvent
from pydantic import TypeAdapter, ValidationError

from peltier_client.errors import ConnectionFailed, ErrorBody, UnexpectedAnswer
from peltier_client.exchange.request import error_from_detail
from peltier_client.protocol.predict import (
    AdapterRef,
    BatchInfo,
    Entity,
    FinishReason,
    Gates,
    Provenance,
    Term,
    TextPiece,
    Tier,
    Timings,
    Usage,
)
from peltier_client.protocol.wire import ResponseModel

_DONE = "[DONE]"


class Prediction(ResponseModel):
    """The prediction for one input. The task decides which fields are set; the others are None.

    Classification sets `label`, `score` and `scores`. Multilabel sets `labels` and `scores`. Regression sets `value`,
    ranking `score`, embedding `embedding`, sparse embedding `terms`, multi-vector embedding `vectors`. A span sets
    `answer`, `start`, `end` and `score`, token classification `entities`, and `truncated_at` if the text was
    truncated. Generation sets `text`, `score` and `finish_reason`, and `label` or `value` if the text is one of the
    task's labels.
    """

    label: str | None = None
    score: float | None = None
    scores: dict[str, float] | None = None
    labels: list[str] | None = None
    value: float | None = None
    embedding: list[float] | list[int] | None = None
    terms: list[Term] | None = None
    vectors: list[list[float]] | None = None
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
    """One prediction per input, in the order of the inputs. `body` is the whole response. Feedback names the
    `request_id` and the row: `row` for the first input, and so on."""

    body: PredictionBody
    request_id: str = ""
    row: int = 0

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


_EVENT: TypeAdapter[TextPiece | PredictionBody] = TypeAdapter(TextPiece | PredictionBody)


class TextReader:
    """Takes events one by one. `predictions` is the whole answer once received; `done` is set by the last event."""

    def __init__(self) -> None:
        self.predictions: Predictions | None = None
        self.done = False

    def read(self, event: ServerSentEvent) -> str:
        """The piece of text in `event`, which may be empty. Raises the error that an event carries."""
        try:
            if event.event == "error":
                raise error_from_detail(ErrorBody.model_validate_json(event.data).error)
            if event.data == _DONE:
                self.done = True
                return ""
            found = _EVENT.validate_json(event.data)
        except ValidationError as error:
            raise UnexpectedAnswer(
                f"the server sent an event that does not belong to a text: {event.data[:80]!r}"
            ) from error
        if isinstance(found, TextPiece):
            return found.text
        self.predictions = Predictions(found)
        return ""

    def end(self) -> Predictions:
        """The whole answer. Raises `ConnectionFailed` if the events ended before it."""
        if not self.done or self.predictions is None:
            raise ConnectionFailed("the connection broke before the text was complete")
        return self.predictions
