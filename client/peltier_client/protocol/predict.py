"""Predictions on the wire."""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    StrictBool,
    StrictInt,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from peltier_client.errors import ErrorBody
from peltier_client.protocol.wire import RequestModel, ResponseModel


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
    """The relevance of a document for a query, from 0 to 1; with `raw_scores` the output of the head."""

    score: float
    gates: OptionalGates = None


class EmbeddingPrediction(ResponseModel):
    """A vector, whose cosine with those of other texts says how similar they are; with `precision` its integers."""

    embedding: list[float] | list[int]
    gates: OptionalGates = None


class Term(ResponseModel):
    """An entry of the vocabulary, by its number `index` and its text, and its weight in a text."""

    index: int
    term: str
    weight: float


class SparsePrediction(ResponseModel):
    """The terms of a text with their weights, largest first. The product of the weights of two texts says how similar
    they are. With `raw_scores` the weights are logits."""

    terms: list[Term]
    gates: OptionalGates = None


class VectorsPrediction(ResponseModel):
    """A vector of unit length for each token. The largest cosine of each vector of a query with those of a document,
    added up, says how relevant the document is. With `raw_scores` the vectors may have any length."""

    vectors: list[list[float]]
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
    | SparsePrediction
    | VectorsPrediction
    | TextPrediction
    | EntitiesPrediction
    | SpanPrediction
)


def state_rule(rule: str) -> WrapValidator:
    """Report `rule` instead of one error per member of a union."""

    def validate(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValidationError:
            raise PydanticCustomError("input_shape", "{rule}", {"rule": rule}) from None

    return WrapValidator(validate)


MAX_TIMEOUT_MS = 3_600_000
MAX_PRIORITY = 10
MAX_BEAMS = 16
MAX_TEMPERATURE = 2.0

# The length rule makes pydantic decode the text as UTF-8, which refuses lone surrogates of JSON.
Text = Annotated[str, Field(min_length=0)]
TextTuple = tuple[Text, Text] | tuple[Text, Text, Text]
Input = Annotated[
    Text | TextTuple,
    state_rule('must be a text or a ["text", "pair"] or ["text", "pair", "third"] list, in valid Unicode'),
]
Inputs = Annotated[
    Text
    | Annotated[list[Text], Field(min_length=1, fail_fast=True)]
    | Annotated[list[TextTuple], Field(min_length=1, fail_fast=True)],
    Field(union_mode="left_to_right"),
    state_rule(
        'must be a text, a non-empty list of texts, or a non-empty list of ["text", "pair"] or '
        '["text", "pair", "third"] lists, in valid Unicode'
    ),
]
Priority = Annotated[StrictInt, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY)]
Temperature = Annotated[float, Field(strict=True, ge=0, le=MAX_TEMPERATURE, allow_inf_nan=False)]
TopP = Annotated[float, Field(strict=True, gt=0, le=1, allow_inf_nan=False)]
Seed = Annotated[StrictInt, Field(ge=-(2**63), lt=2**63)]


Precision = Literal["float32", "int8", "uint8", "binary", "ubinary"]
Aggregation = Literal["none", "simple", "first", "average", "max"]


class Parameters(RequestModel):
    """Options of a prediction. An absent key has the default; the last six are for tasks that generate text.

    `dimensions` truncates embeddings to their first values; with `raw_scores` they are not normalized. `precision` has
    them quantized as by sentence-transformers: to one of 256 equal steps from -1 to 1 for each value (`int8`, `uint8`),
    or to a bit for each value, eight of them in a number (`binary`, `ubinary`). Of a sparse embedding `top_k` leaves
    the terms with the largest weights. `prompt_name` puts a prompt of the backbone's checkpoint before each text that
    is embedded.

    Without `top_k` the answer has the scores of all labels, or of the best `default_top_k` (a setting of the server) if
    the task has more; a multilabel task always names every label that applies.
    Inputs longer than the task's maximum are truncated and counted in `usage`; without `truncate` they are refused.
    With `stride` such a text is read in windows that share `stride` tokens, where the answer is in the text: that of a
    token classification, and the context of a question. The default is the task's own stride.
    `aggregation` gives each token (`none`) or group of equal neighbours (`simple`) of a token classification, or all
    tokens of a word the label of the `first`, of the `average`, or of the likeliest (`max`); by default `first`.
    Words are the tokenizer's; with `words` "spaces", they are what stands between spaces.
    For a T5 task with labels, `answer` chooses between scoring the labels and generating a text.
    A higher `priority` runs before the tenant's other rows and does not affect other tenants.
    Temperature 0 is greedy; above 0 tokens are sampled, among the most probable up to `top_p`, reproducibly by `seed`.
    """

    top_k: Annotated[StrictInt, Field(ge=1)] | None = None
    raw_scores: StrictBool = False
    dimensions: Annotated[StrictInt, Field(ge=1)] | None = None
    precision: Precision = "float32"
    prompt_name: Text | None = None
    truncate: StrictBool = True
    return_gates: StrictBool = False
    timeout_ms: Annotated[StrictInt, Field(ge=1, le=MAX_TIMEOUT_MS)] | None = None
    priority: Priority = 0
    stride: Annotated[StrictInt, Field(ge=0)] | None = None
    aggregation: Aggregation = "first"
    words: Literal["tokenizer", "spaces"] = "tokenizer"
    answer: Literal["score", "generate"] | None = None
    max_new_tokens: Annotated[StrictInt, Field(ge=1)] | None = None
    num_beams: Annotated[StrictInt, Field(ge=1, le=MAX_BEAMS)] | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    seed: Seed | None = None


class PredictRequest(RequestModel):
    """One or many inputs for one task; with `stream`, one input whose text is sent while it is generated."""

    inputs: Inputs
    parameters: Parameters = Parameters()
    stream: StrictBool = False


class MixedItem(RequestModel):
    """One input for one task of a mixed request; `task` is a task reference."""

    task: Text
    input: Input
    parameters: Parameters = Parameters()


class MixedPredictRequest(RequestModel):
    """Either `requests`, one input each for any tasks, or one `input` for several `tasks`, with `parameters` for all.

    Each of `tasks` is a task reference or a group `prefix*`: the caller's own adapters whose names begin with the
    prefix, in the order of their names.
    """

    requests: Annotated[list[MixedItem], Field(min_length=1)] | None = None
    tasks: Annotated[list[Text], Field(min_length=1)] | None = None
    input: Input | None = None
    parameters: Parameters | None = None

    @model_validator(mode="after")
    def _has_one_form(self) -> Self:
        others = (self.tasks, self.input)
        mixed = self.requests is not None and others == (None, None) and self.parameters is None
        if not mixed and (self.requests is not None or None in others):
            raise ValueError("a body has either requests, or tasks and an input")
        return self


class AdapterRef(ResponseModel):
    """The adapter version that answered."""

    tenant: str
    name: str
    version: int
    digest: str
    preset: str


class Usage(ResponseModel):
    """The charged tokens: `tokens` of the inputs and `completion_tokens` of generated texts.

    `truncated_inputs` counts the inputs that were longer than the task's maximum and truncated to it.
    """

    tokens: int
    truncated_inputs: int = 0
    completion_tokens: Annotated[int | None, Field(exclude_if=is_none)] = None


class Timings(ResponseModel):
    """The server's time by phase, in milliseconds."""

    queue: float
    load: float
    compute: float
    total: float


class BatchInfo(ResponseModel):
    """The batch that computed the request: its rows and distinct adapters."""

    rows: int
    adapters: int


Tier = Literal["device", "host", "store"]


class Provenance(ResponseModel):
    """The adapter that answered, the usage, the timings and the batch.

    `tier` is where the request found the adapter: on the device, in the memory of the host or in the store.
    """

    task: str
    adapter: AdapterRef
    tier: Annotated[Tier | None, Field(exclude_if=is_none)] = None
    usage: Usage
    timings_ms: Timings
    batch: BatchInfo


class PredictResponse(Provenance):
    """One prediction per input, in the order of the inputs."""

    predictions: list[AnyPrediction]


class TextPiece(ResponseModel):
    """A piece of the text for the input at `index`; the whole answer follows the last piece."""

    index: int
    text: str


class MixedPredictResponse(ResponseModel):
    """One answer or error per request, in the order of the requests. For a request with `tasks`, one per task, and
    `tasks` names them, with the adapters of each group in its place."""

    results: list[PredictResponse | ErrorBody]
    tasks: Annotated[list[str] | None, Field(exclude_if=is_none)] = None
