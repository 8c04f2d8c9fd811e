"""The routes `/embed`, `/embed_sparse`, `/similarity` and `/predict` of text-embeddings-inference."""

from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import Request, Response
from peltier_adapters.spec.tasks import TaskSpec
from peltier_client.errors import InferenceFailed, PeltierError
from peltier_client.protocol.names import BACKBONE_TASK
from peltier_client.protocol.predict import Input, Parameters, Text, state_rule
from peltier_client.protocol.wire import RequestModel, ResponseModel
from pydantic import Field, StrictBool, StrictInt
from pydantic_core import to_json

from peltier_server.errors import ErrorShape
from peltier_server.http.application import (
    answer_json,
    listed,
    predict_with,
    resolve,
    resolve_embedding,
    state_of,
    task_responses,
)
from peltier_server.http.scoped_route import scoped_router
from peltier_server.inference.prediction import JSONBytes, Prediction, truncation_header

TruncationDirection = Annotated[
    Literal["right", "Right"], state_rule("must be 'right': this server truncates texts at their ends")
]

# An embedding of unit length has no larger values than 1.
_DIGITS = 9

Texts = Annotated[
    Text | Annotated[list[Text], Field(min_length=1, fail_fast=True)],
    state_rule("must be a text or a non-empty list of texts, in valid Unicode; token ids are not served"),
]
_OneOrTwo = Annotated[list[Text], Field(min_length=1, max_length=2)]

router = scoped_router("predict", "embed")
classification = scoped_router("predict", "classify")


class TextEmbedRequest(RequestModel):
    """The request of text-embeddings-inference. `adapter_id` is a task reference, by default the backbone's own task.

    With `normalize` the vectors have unit length, whatever the task says, and without it they never do. A text that is
    too long is refused, unless `truncate` is set. `prompt_name` is a prompt of the backbone's checkpoint.
    """

    inputs: Texts
    adapter_id: str = BACKBONE_TASK
    normalize: StrictBool = True
    truncate: StrictBool | None = False
    truncation_direction: TruncationDirection = "right"
    dimensions: Annotated[StrictInt, Field(ge=1)] | None = None
    prompt_name: Text | None = None

    @property
    def parameters(self) -> Parameters:
        """Those of a prediction."""
        return Parameters(
            dimensions=self.dimensions,
            prompt_name=self.prompt_name,
            truncate=bool(self.truncate),
            raw_scores=not self.normalize,
        )


class SparseRequest(RequestModel):
    """The request of text-embeddings-inference for sparse embeddings. `prompt_name` is a prompt of the backbone's
    checkpoint."""

    inputs: Texts
    adapter_id: str = BACKBONE_TASK
    truncate: StrictBool | None = False
    truncation_direction: TruncationDirection = "right"
    prompt_name: Text | None = None


class SparseValue(ResponseModel):
    """A term by its number in the vocabulary, and its weight."""

    index: int
    value: float


class SparseErrorBody(ResponseModel):
    """The error of text-embeddings-inference."""

    error: str
    error_type: Literal["Backend", "Overloaded", "Unhealthy", "Validation"]


def _sparse_error(error: PeltierError) -> SparseErrorBody:
    """The message, and the type that the protocol gives its status."""
    types: dict[int, Literal["Overloaded", "Unhealthy"]] = {429: "Overloaded", 503: "Unhealthy"}
    other: Literal["Backend", "Validation"] = "Backend" if error.status >= 500 or error.status == 424 else "Validation"
    return SparseErrorBody(error=error.message, error_type=types.get(error.status, other))


# The older routes of the protocol answer in the server's own form.
SPARSE_ERRORS = ErrorShape(SparseErrorBody, _sparse_error, ("/embed_sparse",))


class SimilarityInputs(RequestModel):
    """A text, and the texts that are compared with it."""

    source_sentence: Text
    sentences: Annotated[list[Text], Field(min_length=1)]


class SimilarityParameters(RequestModel):
    """A text that is too long is refused, unless `truncate` is set. `prompt_name` is a prompt of the backbone's
    checkpoint."""

    truncate: StrictBool | None = False
    truncation_direction: TruncationDirection = "right"
    prompt_name: Text | None = None


class SimilarityRequest(RequestModel):
    """The request of text-embeddings-inference. `adapter_id` is a task reference, by default the backbone's own
    task."""

    inputs: SimilarityInputs
    parameters: SimilarityParameters | None = None
    adapter_id: str = BACKBONE_TASK


class TextClassifyRequest(RequestModel):
    """The request of text-embeddings-inference. `adapter_id` is a task reference. A text that is too long is refused,
    unless `truncate` is set.

    `inputs` is one input, a text or a pair of texts, or a batch of lists of one or two texts."""

    inputs: Annotated[
        Text | _OneOrTwo | Annotated[list[_OneOrTwo], Field(min_length=1, fail_fast=True)],
        Field(union_mode="left_to_right"),
        state_rule("must be a text, a pair of texts, or a non-empty list of lists of one or two texts"),
    ]
    adapter_id: str
    raw_scores: StrictBool = False
    truncate: StrictBool | None = False
    truncation_direction: TruncationDirection = "right"

    @property
    def rows(self) -> list[Input]:
        """The inputs of the prediction."""
        return [_row(one) for one in self.inputs] if self.is_batch else [_row(self.inputs)]

    @property
    def is_batch(self) -> bool:
        """Whether the answer is a list for each input."""
        return isinstance(self.inputs, list) and isinstance(self.inputs[0], list)


def _row(texts: Any) -> Input:
    """A text, or a list of one or two texts, as an input."""
    if isinstance(texts, str):
        return texts
    return str(texts[0]) if len(texts) == 1 else (texts[0], texts[1])


class LabelScore(ResponseModel):
    """A label with its score."""

    score: float
    label: str


@router.post("/embed", response_model=list[list[float]], responses=task_responses())
async def embed(body: TextEmbedRequest, request: Request) -> Response:
    """Embed texts in the shape of text-embeddings-inference, by the backbone alone or by a task."""
    target = resolve_embedding(request, body.adapter_id)
    done = await predict_with(request, target, listed(body.inputs), body.parameters)
    normalize = body.normalize and not target.entry.task.normalized
    vectors = (_unit(one["embedding"]) if normalize else one["embedding"] for one in done.fields)
    return await answer_json(request, vectors, done.opening.num_truncated)


def _unit(embedding: list[float]) -> list[float]:
    values = np.array(embedding)
    length = float(np.linalg.norm(values))
    found: list[float] = (values / length).round(_DIGITS).tolist() if length else embedding
    return found


@router.post("/embed_sparse", response_model=list[list[SparseValue]], responses=task_responses(SPARSE_ERRORS))
async def embed_sparse(body: SparseRequest, request: Request) -> Response:
    """The terms of texts with their weights, in the order of the vocabulary, by a sparse-embedding task. Other models
    are refused with 424, as text-embeddings-inference does for models without SPLADE pooling."""
    target = resolve(request, body.adapter_id)
    if (kind := target.entry.task.type) != "sparse-embedding":
        raise InferenceFailed(f"model {body.adapter_id!r} has no sparse embeddings: it is of type {kind}")
    parameters = Parameters(truncate=bool(body.truncate), prompt_name=body.prompt_name)
    done = await predict_with(request, target, listed(body.inputs), parameters)
    return await answer_json(request, map(_by_number, done.fields), done.opening.num_truncated)


def _by_number(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The terms of a text in the order of the vocabulary."""
    terms = sorted((term["index"], term["weight"]) for term in found["terms"])
    return [{"index": index, "value": weight} for index, weight in terms]


@router.post("/similarity", response_model=list[float], responses=task_responses())
async def similarity(body: SimilarityRequest, request: Request) -> Response:
    """The cosine of a text's embedding with that of each sentence, in their order."""
    target = resolve_embedding(request, body.adapter_id)
    texts = [body.inputs.source_sentence, *body.inputs.sentences]
    asked = body.parameters or SimilarityParameters()
    parameters = Parameters(truncate=bool(asked.truncate), prompt_name=asked.prompt_name)
    done = await predict_with(request, target, texts, parameters)
    cost = len(texts) * target.entry.num_dimensions
    cosines = await state_of(request).preparation.run(target.context.tenant, cost, partial(_cosines, done))
    return JSONBytes(to_json(cosines), truncation_header(done.opening.num_truncated))


def _cosines(done: Prediction) -> list[float]:
    """The cosine of the first vector with each of the others; 0 for a vector of length 0."""
    vectors = np.array([one["embedding"] for one in done.fields])
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    source, *others = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    found: list[float] = (np.array(others) @ source).round(_DIGITS).tolist()
    return found


@classification.post("/predict", response_model=list[LabelScore] | list[list[LabelScore]], responses=task_responses())
async def classify_texts(body: TextClassifyRequest, request: Request) -> Response:
    """Classify texts or pairs in the shape of text-embeddings-inference: all labels with their scores, best first."""
    target = resolve(request, body.adapter_id, ("classification", "multilabel", "regression", "ranking"))
    parameters = Parameters(truncate=bool(body.truncate), raw_scores=body.raw_scores, **all_scores(target.entry.task))
    done = await predict_with(request, target, body.rows, parameters)
    ranked = (_best_first(target.entry.task, one) for one in done.fields)
    return await answer_json(request, ranked if body.is_batch else next(ranked), done.opening.num_truncated)


def all_scores(task: TaskSpec) -> dict[str, Any]:
    """The parameters of a prediction with the scores of all labels."""
    top_k = len(task.labels) if task.type in ("classification", "multilabel") else None
    # A T5 scores its labels, because a generated text has the score of one label.
    return {"answer": "score" if task.decoding else None, "top_k": top_k}


def _best_first(task: TaskSpec, found: Any) -> list[dict[str, Any]]:
    if task.type in ("regression", "ranking"):
        return [{"score": found["value" if task.type == "regression" else "score"], "label": task.labels[0]}]
    ranked = sorted(found["scores"].items(), key=lambda pair: -pair[1])
    return [{"score": score, "label": label} for label, score in ranked]
