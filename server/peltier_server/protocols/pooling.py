"""The route `/pooling` of vLLM."""

import base64
import time
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from fastapi import Request, Response
from peltier_adapters.spec.tasks import TaskSpec
from peltier_client.errors import InvalidInput
from peltier_client.protocol.wire import ResponseModel

from peltier_server.errors import TASK_ERRORS, scoped_errors
from peltier_server.http.application import accept, answer_json, resolve
from peltier_server.http.disconnects import cancel_on_disconnect
from peltier_server.http.scoped_route import scoped_router
from peltier_server.inference.prediction import TRUNCATION_HEADER, Prediction
from peltier_server.protocols.openai.embeddings import EmbeddingRequest, EmbeddingUsage, token_usage

_RESPONSES = {200: {"headers": TRUNCATION_HEADER}, **scoped_errors(*TASK_ERRORS)}

router = scoped_router("predict", "classify")


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


@router.post("/pooling", response_model=PoolingResponse, responses=_RESPONSES)
async def pool(body: PoolingRequest, request: Request) -> Response:
    """The embeddings of texts, or the probabilities of all labels, in the shape of vLLM."""
    service = accept(request)
    target = resolve(request, service, body.model)
    task = target.entry.task
    parameters = body.parameters.model_copy(update=_scores_of(task, body))
    done = await cancel_on_disconnect(request, service.predictor.predict(target, body.texts, parameters))
    pooled = (_pooled(index, one, body.encoding_format) for index, one in enumerate(done.fields))
    answer = vllm_answer(f"pool-{target.context.request_id}", body.model, pooled, done)
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
    if task.type == "embedding":
        return {}
    return {"top_k": len(task.labels), "answer": "score" if task.decoding else None}


def _pooled(index: int, found: dict[str, Any], encoding: str) -> dict[str, Any]:
    values = found["embedding"] if "embedding" in found else list(found["scores"].values())
    return {"object": "pooling", "index": index, "data": values if encoding == "float" else _to_base64(values)}


def vllm_answer(answer_id: str, model: str, data: Iterator[dict[str, Any]], done: Prediction) -> dict[str, Any]:
    """The answer with these `data` in the shape of vLLM."""
    return {
        "id": answer_id, "object": "list", "created": int(time.time()), "model": model, "data": data,
        "usage": token_usage(done),
    }  # fmt: skip


def _to_base64(values: list[float]) -> str:
    return base64.b64encode(np.array(values, "<f4").tobytes()).decode()
