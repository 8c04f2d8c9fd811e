"""Predictions."""

import asyncio
import logging

from fastapi import APIRouter, Request, Response
from peltier_client.errors import (
    AdapterNotFound,
    DeadlinePassed,
    Draining,
    ErrorBody,
    InferenceFailed,
    InvalidInput,
    NotReady,
    PeltierError,
    QueueFull,
    ServerError,
    TooLarge,
    Unauthorized,
    VersionNotFound,
)
from peltier_client.protocol import (
    MixedItem,
    MixedPredictRequest,
    MixedPredictResponse,
    PredictRequest,
    PredictResponse,
)

from peltier_server.errors import describe_errors
from peltier_server.predictor import Prediction
from peltier_server.routes.dependencies import Accepted, unless_gone
from peltier_server.service import Service

logger = logging.getLogger(__name__)

_SHARED = (Unauthorized, TooLarge, InvalidInput, NotReady, Draining)
_OF_ONE_TASK = (*_SHARED, AdapterNotFound, VersionNotFound, InferenceFailed, QueueFull, DeadlinePassed)

router = APIRouter(prefix="/v1", tags=["predict"])


@router.post("/tasks/{task}/predict", responses=describe_errors(*_OF_ONE_TASK))
async def predict(
    task: str, body: PredictRequest, request: Request, response: Response, service: Accepted
) -> PredictResponse:
    """Answer one or many inputs with one task's adapter: `name` for its newest version, `name@3` for version 3."""
    inputs = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    prediction = await unless_gone(request, service.predictor.predict(task, inputs, body.parameters))
    response.headers.update(_provenance(prediction))
    return prediction.response


@router.post("/predict", responses=describe_errors(*_SHARED))
async def predict_mixed(body: MixedPredictRequest, request: Request, service: Accepted) -> MixedPredictResponse:
    """Answer any mix of tasks at once; each request gets its own result or its own error, in order."""
    service.predictor.check_count(len(body.requests), "requests")
    work = asyncio.gather(*(_result(service, item) for item in body.requests))
    return MixedPredictResponse(results=await unless_gone(request, work))


async def _result(service: Service, item: MixedItem) -> PredictResponse | ErrorBody:
    try:
        return (await service.predictor.predict(item.task, [item.input], item.parameters)).response
    except PeltierError as error:
        return error.body()
    except Exception:
        logger.exception("one part of a mixed request failed, for task %s", item.task)
        return ServerError("the server failed; its log has the reason").body()


def _provenance(prediction: Prediction) -> dict[str, str]:
    answer = prediction.response
    return {
        "x-adapter-version": str(answer.adapter.version),
        "x-adapter-digest": answer.adapter.digest,
        "x-adapter-tier": prediction.tier,
        "x-queue-time-ms": f"{answer.timings_ms.queue:.3f}",
        "x-compute-time-ms": f"{answer.timings_ms.compute:.3f}",
    }
