"""The routes `/embed`, `/embed_sparse` and `/similarity` of text-embeddings-inference."""

from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import Request, Response
from peltier_client.errors import InferenceFailed, PeltierError
from peltier_client.protocol.names import BACKBONE_TASK
from peltier_client.protocol.predict import Parameters, Text, state_rule
from peltier_client.protocol.wire import RequestModel, ResponseModel
from pydantic import BaseModel, Field, StrictBool, StrictInt
from pydantic_core import to_json

from peltier_server.errors import TASK_ERRORS, scoped_errors
from peltier_server.http.application import accept, answer_json, resolve, resolve_embedding
from peltier_server.http.disconnects import cancel_on_disconnect
from peltier_server.http.scoped_route import scoped_router
from peltier_server.inference.prediction import TRUNCATION_HEADER, JSONBytes, Prediction, truncation_header

TruncationDirection = Annotated[
    Literal["right", "Right"], state_rule("must be 'right': this server truncates texts at their ends")
]

# An embedding of unit length has no larger values than 1.
_DIGITS = 9

_Texts = Annotated[
    Text | Annotated[list[Text], Field(min_length=1, fail_fast=True)],
    state_rule("must be a text or a non-empty list of texts, in valid Unicode; token ids are not served"),
]

_RESPONSES = {200: {"headers": TRUNCATION_HEADER}, **scoped_errors(*TASK_ERRORS)}

router = scoped_router("predict", "embed")


class TextEmbedRequest(RequestModel):
    """The request of text-embeddings-inference. `adapter_id` is a task reference, by default the backbone's own task.

    With `normalize` the vectors have unit length, whatever the task says, and without it they never do. A text that is
    too long is refused, unless `truncate` is set. `prompt_name` is a prompt of the backbone's checkpoint.
    """

    inputs: _Texts
    adapter_id: str = BACKBONE_TASK
    normalize: StrictBool = True
    truncate: StrictBool | None = False
    truncation_direction: TruncationDirection = "right"
    dimensions: Annotated[StrictInt, Field(ge=1)] | None = None
    prompt_name: Text | None = None

    @property
    def texts(self) -> list[str]:
        """One or many."""
        return [self.inputs] if isinstance(self.inputs, str) else self.inputs

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

    inputs: _Texts
    adapter_id: str = BACKBONE_TASK
    truncate: StrictBool | None = False
    truncation_direction: TruncationDirection = "right"
    prompt_name: Text | None = None

    @property
    def texts(self) -> list[str]:
        """One or many."""
        return [self.inputs] if isinstance(self.inputs, str) else self.inputs


class SparseValue(ResponseModel):
    """A term by its number in the vocabulary, and its weight."""

    index: int
    value: float


class SparseErrorBody(ResponseModel):
    """The error of text-embeddings-inference."""

    error: str
    error_type: Literal["Backend", "Overloaded", "Unhealthy", "Validation"]


class SparseErrors:
    """The form of errors at `/embed_sparse`. The older routes of the protocol answer in the server's own form."""

    model: type[BaseModel] = SparseErrorBody

    def speaks(self, path: str) -> bool:
        """Whether errors at `path` have this form."""
        return path == "/embed_sparse"

    def status(self, error: type[PeltierError] | PeltierError) -> int:
        """The error's own status."""
        return error.status

    def body(self, error: PeltierError) -> SparseErrorBody:
        """The message, and the type that the protocol gives its status."""
        types: dict[int, Literal["Overloaded", "Unhealthy"]] = {429: "Overloaded", 503: "Unhealthy"}
        other: Literal["Backend", "Validation"] = (
            "Backend" if error.status >= 500 or error.status == 424 else "Validation"
        )
        return SparseErrorBody(error=error.message, error_type=types.get(error.status, other))


SPARSE_ERRORS = SparseErrors()


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


def _unit(embedding: list[float]) -> list[float]:
    values = np.array(embedding)
    length = float(np.linalg.norm(values))
    found: list[float] = (values / length).round(_DIGITS).tolist() if length else embedding
    return found


@router.post("/embed", response_model=list[list[float]], responses=_RESPONSES)
async def embed(body: TextEmbedRequest, request: Request) -> Response:
    """Embed texts in the shape of text-embeddings-inference, by the backbone alone or by a task."""
    service = accept(request)
    target = resolve_embedding(request, service, body.adapter_id)
    done = await cancel_on_disconnect(request, service.predictor.predict(target, body.texts, body.parameters))
    normalize = body.normalize and not target.entry.task.normalized
    vectors = (_unit(one["embedding"]) if normalize else one["embedding"] for one in done.fields)
    return await answer_json(request, vectors, done.opening.num_truncated)


@router.post(
    "/embed_sparse",
    response_model=list[list[SparseValue]],
    responses={200: {"headers": TRUNCATION_HEADER}, **scoped_errors(*TASK_ERRORS, shape=SPARSE_ERRORS)},
)
async def embed_sparse(body: SparseRequest, request: Request) -> Response:
    """The terms of texts with their weights, in the order of the vocabulary, by a sparse-embedding task. Other models
    are refused with 424, as text-embeddings-inference does for models without SPLADE pooling."""
    service = accept(request)
    target = resolve(request, service, body.adapter_id)
    if (kind := target.entry.task.type) != "sparse-embedding":
        raise InferenceFailed(f"model {body.adapter_id!r} has no sparse embeddings: it is of type {kind}")
    parameters = Parameters(truncate=bool(body.truncate), prompt_name=body.prompt_name)
    done = await cancel_on_disconnect(request, service.predictor.predict(target, body.texts, parameters))
    return await answer_json(request, map(_by_number, done.fields), done.opening.num_truncated)


def _by_number(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The terms of a text in the order of the vocabulary."""
    terms = sorted((term["index"], term["weight"]) for term in found["terms"])
    return [{"index": index, "value": weight} for index, weight in terms]


@router.post("/similarity", response_model=list[float], responses=_RESPONSES)
async def similarity(body: SimilarityRequest, request: Request) -> Response:
    """The cosine of a text's embedding with that of each sentence, in their order."""
    service = accept(request)
    target = resolve_embedding(request, service, body.adapter_id)
    texts = [body.inputs.source_sentence, *body.inputs.sentences]
    asked = body.parameters or SimilarityParameters()
    parameters = Parameters(truncate=bool(asked.truncate), prompt_name=asked.prompt_name)
    done = await cancel_on_disconnect(request, service.predictor.predict(target, texts, parameters))
    cosines = await request.app.state.preparation.run(
        target.context.tenant, len(texts) * target.entry.num_dimensions, partial(_cosines, done)
    )
    return JSONBytes(to_json(cosines), truncation_header(done.opening.num_truncated))


def _cosines(done: Prediction) -> list[float]:
    """The cosine of the first vector with each of the others; 0 for a vector of length 0."""
    vectors = np.array([one["embedding"] for one in done.fields])
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    source, *others = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    found: list[float] = (np.array(others) @ source).round(_DIGITS).tolist()
    return found
