"""Predictions."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi import Request, Response
from peltier_client.errors import InvalidInput, PeltierError, QueueFull
from peltier_client.protocol.predict import (
    MixedItem,
    MixedPredictRequest,
    MixedPredictResponse,
    Parameters,
    PredictRequest,
    PredictResponse,
    TextPiece,
)

from peltier_server.errors import TASK_ERRORS, scoped_errors
from peltier_server.http.application import accept, get_context, resolve
from peltier_server.http.disconnects import begin, cancel_on_disconnect
from peltier_server.http.events import DONE, MEDIA_TYPE, EventResponse, event, until_error
from peltier_server.http.scoped_route import scoped_router
from peltier_server.inference.items import MixedAnswer
from peltier_server.inference.prediction import (
    TRUNCATION_HEADER,
    JSONBytes,
    Prediction,
    StreamStart,
    mixed_json,
    prediction_json,
    truncation_header,
)
from peltier_server.inference.text_stream import StreamedText

_STREAMED: dict[str, Any] = {
    "description": "The predictions; with `stream` the text in events, the predictions after its last piece.",
    "content": {MEDIA_TYPE: {"schema": {"type": "string"}}},
    "headers": TRUNCATION_HEADER,
}

_RESPONSES = {200: _STREAMED, **scoped_errors(*TASK_ERRORS)}
_MIXED_RESPONSES = {200: {"headers": TRUNCATION_HEADER}, **scoped_errors(QueueFull)}

router = scoped_router("predict", "predict", "/v1")


@router.post("/tasks/{task}/predict", response_model=PredictResponse, responses=_RESPONSES)
async def predict(task: str, body: PredictRequest, request: Request) -> Response:
    """Answer one or many inputs with one task's adapter: `name`, a version `name@3`, or an alias `name@production`."""
    service = accept(request)
    target = resolve(request, task)
    inputs = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    if not body.stream:
        prediction = await cancel_on_disconnect(request, service.predictor.predict(target, inputs, body.parameters))
        answer = await prediction_json(request.app.state.preparation, target.context, prediction)
        return JSONBytes(answer, _provenance(prediction))
    if len(inputs) != 1:
        raise InvalidInput(f"stream is for one input; this request has {len(inputs)}")
    stream = service.predictor.stream(target, inputs[0], body.parameters)
    opening = await begin(request, stream)
    return EventResponse(until_error(_events(stream), _error_event), _early_provenance(opening, stream), stream.close)


@router.post("/predict", response_model=MixedPredictResponse, responses=_MIXED_RESPONSES)
async def predict_mixed(body: MixedPredictRequest, request: Request) -> Response:
    """Answer any mix of tasks at once, or one input with many tasks or groups of tasks; each request or task gets its
    own result or its own error, in order."""
    service = accept(request)
    preparation, context = request.app.state.preparation, get_context(request)
    tasks = None if body.tasks is None else service.predictor.expand_groups(context, body.tasks)
    items = _items(body, tasks)
    service.predictor.check_count(len(items), "requests")
    mixed = MixedAnswer(service.predictor, service.metrics.versions, preparation, context, items)
    results = await cancel_on_disconnect(request, mixed.results())
    truncated = sum(one.opening.num_truncated for one in results if isinstance(one, Prediction))
    answer = await mixed_json(preparation, context, results, tasks)
    return JSONBytes(answer, truncation_header(truncated))


def _items(body: MixedPredictRequest, tasks: Sequence[str] | None) -> list[MixedItem]:
    if body.requests is not None:
        return body.requests
    assert tasks is not None, "a body has requests or tasks"
    assert body.input is not None, "a body with tasks has an input"
    parameters = body.parameters or Parameters()
    return [MixedItem.model_construct(task=task, input=body.input, parameters=parameters) for task in tasks]


async def _events(stream: StreamedText) -> AsyncIterator[bytes]:
    async for piece in stream.pieces():
        yield event(TextPiece(index=0, text=piece))
    yield event(stream.prediction.json())
    yield DONE


def _error_event(error: PeltierError) -> bytes:
    return event(error.body(), "error")


def _provenance(prediction: Prediction) -> dict[str, str]:
    return _headers(prediction.opening, prediction.timings.queue, prediction.timings.compute)


def _early_provenance(opening: StreamStart, stream: StreamedText) -> dict[str, str]:
    if stream.first is None:
        return _provenance(stream.prediction)
    return _headers(opening, 1000 * stream.first.queue_seconds, 1000 * stream.first.compute_seconds)


def _headers(opening: StreamStart, queue_ms: float, compute_ms: float) -> dict[str, str]:
    return {
        "x-adapter-version": str(opening.adapter.version),
        "x-adapter-digest": opening.adapter.digest,
        "x-adapter-tier": opening.tier,
        "x-queue-time-ms": f"{queue_ms:.3f}",
        "x-compute-time-ms": f"{compute_ms:.3f}",
        **truncation_header(opening.num_truncated),
    }
