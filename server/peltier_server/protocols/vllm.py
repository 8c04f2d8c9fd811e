"""The routes `/classify` and `/pooling` of vLLM."""

import base64
import time
from collections.abc import Iterator
from itertools import count
from typing import Any, Literal

import numpy as np
from fastapi import Request, Response
from peltier_adapters.spec.tasks import TaskSpec
from peltier_client.errors import InvalidInput
from peltier_client.protocol.predict import Parameters, Priority
from peltier_client.protocol.wire import RequestModel, ResponseModel
from pydantic import StrictBool

from peltier_server.http.application import answer_json, listed, predict_with, resolve, task_responses
from peltier_server.http.scoped_route import scoped_router
from peltier_server.inference.prediction import Prediction
from peltier_server.protocols.openai.embeddings import EmbeddingRequest, EmbeddingUsage, token_usage
from peltier_server.protocols.tei import Texts, all_scores

router = scoped_router("predict", "classify")


class ClassifyRequest(RequestModel):
    """The request of vLLM. `model` is a task reference. A text that is too long is refused, unless `truncate` is set.

    `user` is taken and not used. `truncate` is a prediction's and not vLLM's.
    """

    model: str
    input: Texts
    user: str | None = None
    truncate: StrictBool = False
    priority: Priority = 0


class Classified(ResponseModel):
    """The best label of the text at `index`, and the probabilities of all labels in the order of the task."""

    index: int
    label: str
    probs: list[float]
    num_classes: int


class ClassifyUsage(ResponseModel):
    """The tokens of the texts."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int = 0


class ClassifyResponse(ResponseModel):
    """One class for each text, in their order."""

    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    data: list[Classified]
    usage: ClassifyUsage


class PoolingRequest(EmbeddingRequest):
    """The request of vLLM: `model` is an embedding or a classification task. `task` must match the type of
    the task."""

    task: Literal["embed", "classify"] | None = None
    encoding_format: Literal["float", "base64"] = "float"


class Pooled(ResponseModel):
    """The vector of the text at `index`; in base64 its float32 values, little-endian."""

    object: Literal["pooling"] = "pooling"
    index: int
    data: list[float] | str


class PoolingResponse(ResponseModel):
    """One vector for each text, in their order."""

    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    data: list[Pooled]
    usage: EmbeddingUsage


@router.post("/classify", response_model=ClassifyResponse, responses=task_responses())
async def classify(body: ClassifyRequest, request: Request) -> Response:
    """Classify texts in the shape of vLLM."""
    target = resolve(request, body.model, ("classification",))
    parameters = Parameters(truncate=body.truncate, priority=body.priority, **all_scores(target.entry.task))
    done = await predict_with(request, target, listed(body.input), parameters)
    classified = map(_classified, count(), done.fields)
    answer = _answer(f"classify-{target.context.request_id}", body.model, classified, done)
    answer["usage"] |= {"completion_tokens": 0}
    return await answer_json(request, answer, done.opening.num_truncated)


def _classified(index: int, found: dict[str, Any]) -> dict[str, Any]:
    probabilities = list(found["scores"].values())
    return {"index": index, "label": found["label"], "probs": probabilities, "num_classes": len(probabilities)}


@router.post("/pooling", response_model=PoolingResponse, responses=task_responses())
async def pool(body: PoolingRequest, request: Request) -> Response:
    """The embeddings of texts, or the probabilities of all labels, in the shape of vLLM."""
    target = resolve(request, body.model)
    parameters = body.parameters.model_copy(update=_scores_of(target.entry.task, body))
    done = await predict_with(request, target, listed(body.input), parameters)
    pooled = (_pooled(index, one, body.encoding_format) for index, one in enumerate(done.fields))
    answer = _answer(f"pool-{target.context.request_id}", body.model, pooled, done)
    return await answer_json(request, answer, done.opening.num_truncated)


def _scores_of(task: TaskSpec, asked: PoolingRequest) -> dict[str, Any]:
    """The parameters for all scores of a classification; none for an embedding."""
    kinds = {"embedding": "embed", "classification": "classify"}
    if task.type not in kinds:
        raise InvalidInput(
            f"model {asked.model!r} is a {task.type} task; only tasks of the types embedding and classification are "
            "pooled"
        )
    if asked.task not in (None, kinds[task.type]):
        raise InvalidInput(
            f"task is {asked.task!r}: model {asked.model!r} is a {task.type} task, so it must be "
            f"{kinds[task.type]!r} or absent"
        )
    return {} if task.type == "embedding" else all_scores(task)


def _pooled(index: int, found: dict[str, Any], encoding: str) -> dict[str, Any]:
    values = found["embedding"] if "embedding" in found else list(found["scores"].values())
    return {"object": "pooling", "index": index, "data": values if encoding == "float" else _to_base64(values)}


def _answer(answer_id: str, model: str, data: Iterator[dict[str, Any]], done: Prediction) -> dict[str, Any]:
    """The answer with these `data` in the shape of vLLM."""
    return {
        "id": answer_id, "object": "list", "created": int(time.time()), "model": model, "data": data,
        "usage": token_usage(done),
    }  # fmt: skip


def _to_base64(values: list[float]) -> str:
    return base64.b64encode(np.array(values, "<f4").tobytes()).decode()
