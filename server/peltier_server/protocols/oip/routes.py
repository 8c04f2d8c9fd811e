"""Routes of the Open Inference Protocol, version 2."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import version as release_of
from typing import Literal

from fastapi import Request, Response
from peltier_client.errors import (
    AdapterNotFound,
    Draining,
    InferenceFailed,
    InvalidInput,
    NotReady,
    StorageFull,
    TooLarge,
    Unavailable,
    VersionNotFound,
)
from peltier_client.protocol.predict import Input
from pydantic_core import to_json

from peltier_server.catalog.published import Entry
from peltier_server.context import context_of
from peltier_server.errors import describe_errors, scoped_errors
from peltier_server.http.application import (
    Accepted,
    AnyTime,
    Context,
    accept,
    accept_change,
    answer_json,
    predict_with,
    resolve,
    state_of,
    task_responses,
)
from peltier_server.http.bodies import BYTES_PER_COST, SMALL_BODY_BYTES
from peltier_server.http.scoped_route import ScopedRoute, open_router, scoped_router
from peltier_server.inference.prediction import (
    JSONBytes,
    Prediction,
    truncation_header,
    write_pieces,
)
from peltier_server.inference.prediction_request import ResolvedTask
from peltier_server.protocols.oip.inputs import LENGTH_HEADER, TEXTS, json_length, read_inputs, read_parameters
from peltier_server.protocols.oip.messages import (
    OIP_ERRORS,
    IndexedModel,
    InferRequest,
    InferResponse,
    LoadRequest,
    ModelLoad,
    ModelMetadata,
    ModelReady,
    RepositoryIndexRequest,
    ServerLive,
    ServerMetadata,
    ServerReady,
    TensorMetadata,
    UnloadRequest,
)
from peltier_server.protocols.oip.outputs import InferAnswer, choose_outputs, generates, outputs_of
from peltier_server.service import Service

PLATFORM = "peltier"
EXTENSIONS = ("binary_tensor_data", "model_repository")
_PAGE = 1000
_WITH_SCORES = ("classification", "multilabel")
_EVERY = RepositoryIndexRequest()
_LOAD, _UNLOAD = LoadRequest(), UnloadRequest()

_SHARED = scoped_errors(shape=OIP_ERRORS)
_OF_ONE_MODEL = scoped_errors(AdapterNotFound, VersionNotFound, shape=OIP_ERRORS)
_OF_LOADS = scoped_errors(AdapterNotFound, StorageFull, TooLarge, InferenceFailed, Unavailable, shape=OIP_ERRORS)
_INFER = task_responses(OIP_ERRORS)


class TensorRoute(ScopedRoute):
    """A route whose body is JSON and perhaps the bytes of tensors after it. Clients name any content type, or none."""

    reads_any_type = True

    def json_length(self, request: Request) -> int | None:
        """The bytes of the JSON; None for the whole body."""
        return json_length(request)


probes = open_router(tags=["oip"], prefix="/v2")
router = scoped_router("predict", "oip", "/v2", TensorRoute)
changes = scoped_router("publish", "oip", "/v2", TensorRoute)


@probes.get("/health/live")
async def server_live() -> ServerLive:
    """Alive, also while loading and draining."""
    return ServerLive()


@probes.get("/health/ready", responses=describe_errors(NotReady, Draining, shape=OIP_ERRORS))
async def server_ready(lifecycle: AnyTime) -> ServerReady:
    """Ready to predict; 503 otherwise."""
    lifecycle.require_ready()
    return ServerReady()


@router.get("", responses=_SHARED)
async def server_metadata() -> ServerMetadata:
    """The server's name, its release, and its extensions of the protocol."""
    return ServerMetadata(name="peltier", version=release_of("peltier"), extensions=list(EXTENSIONS))


@router.get("/models/{model}", responses=_OF_ONE_MODEL)
async def model_metadata(model: str, context: Context, service: Accepted) -> ModelMetadata:
    """A task with its tensors: `model` is a task reference."""
    entry = service.predictor.resolve(context, model).entry
    published = service.catalog.find(entry.version.tenant, entry.version.name)
    numbers = [entry.number] if published is None else sorted(published.entries)
    return _metadata(model, entry, [str(number) for number in numbers])


@router.get("/models/{model}/versions/{version}", responses=_OF_ONE_MODEL)
async def version_metadata(model: str, version: str, context: Context, service: Accepted) -> ModelMetadata:
    """A version of a task with its tensors."""
    return _metadata(model, service.predictor.resolve(context, _versioned(model, version)).entry, [version])


@router.get("/models/{model}/ready", responses=_OF_ONE_MODEL)
async def model_ready(model: str, context: Context, service: Accepted) -> ModelReady:
    """Whether the task exists and is not in quarantine: every task is loaded when it is used."""
    return _ready(model, service.predictor.resolve(context, model).entry, _failing(service, context.tenant))


@router.get("/models/{model}/versions/{version}/ready", responses=_OF_ONE_MODEL)
async def version_ready(model: str, version: str, context: Context, service: Accepted) -> ModelReady:
    """The same for a version."""
    entry = service.predictor.resolve(context, _versioned(model, version)).entry
    return _ready(model, entry, _failing(service, context.tenant))


@router.post("/models/{model}/infer", response_model=InferResponse, responses=_INFER)
async def infer(model: str, body: InferRequest, request: Request) -> Response:
    """Answer the texts of the tensors `text`, `text_pair` and `text_third` with one task."""
    return await _infer(model, model, body, request)


@router.post("/models/{model}/versions/{version}/infer", response_model=InferResponse, responses=_INFER)
async def infer_version(model: str, version: str, body: InferRequest, request: Request) -> Response:
    """Answer with a version of a task."""
    return await _infer(model, _versioned(model, version), body, request)


@router.post("/repository/index", response_model=list[IndexedModel], responses=_SHARED)
async def repository_index(request: Request, body: RepositoryIndexRequest = _EVERY) -> Response:
    """Every version of the caller's adapters, in order of name. A version in quarantine is not available."""
    service = accept(request)
    context = context_of(request.scope)
    failing = _failing(service, context.tenant)
    models, last = list[IndexedModel](), ""
    while page := service.catalog.page(context.tenant, after=last, containing="", limit=_PAGE):
        for published in page:
            models += [_indexed(published.entries[number], failing) for number in sorted(published.entries)]
        last = page[-1].name
        # Lets other tasks of the event loop run between two pages.
        await asyncio.sleep(0)
    shown = [one for one in models if one.state == "READY" or not body.ready]
    return await answer_json(request, shown)


@changes.post("/repository/models/{model}/load", response_model=ModelLoad, responses=_OF_LOADS)
async def load_model(model: str, request: Request, body: LoadRequest = _LOAD) -> Response:
    """Pin an adapter to the device of every replica."""
    service = await accept_change(request)
    await service.version_admin.pin(context_of(request.scope).caller, model)
    return JSONBytes(to_json(ModelLoad(name=model, load=True)), {})


@changes.post("/repository/models/{model}/unload", response_model=ModelLoad, responses=_OF_LOADS)
async def unload_model(model: str, request: Request, body: UnloadRequest = _UNLOAD) -> Response:
    """Release the pin of an adapter. It still answers: its next request loads it if it was evicted."""
    service = await accept_change(request)
    await service.version_admin.unpin(context_of(request.scope).caller, model)
    return JSONBytes(to_json(ModelLoad(name=model, load=False)), {})


async def _infer(model: str, reference: str, body: InferRequest, request: Request) -> Response:
    accept(request)  # A server that cannot answer says so before it judges the body.
    if body.model_name not in (None, model):
        raise InvalidInput(f"model_name is {body.model_name[:80]!r}; the path names {model[:80]!r}")
    target = resolve(request, reference)
    task = target.entry.task
    inputs = await _read(body, TEXTS[: task.num_texts], request)
    # Without this number the answer would have the scores of the best labels of a large task only.
    has_scores = task.type in _WITH_SCORES and not generates(task, body.parameters.get("answer"))
    parameters = read_parameters(body.parameters, len(task.labels) if has_scores else None)
    chosen = choose_outputs(outputs_of(target.entry, parameters), body)
    done = await predict_with(request, target, inputs, parameters)
    answer = InferAnswer(chosen, done.predictions, _head(model, body, done))
    return await _response(request, target, answer, done)


async def _read(body: InferRequest, names: Sequence[str], request: Request) -> list[Input]:
    """The inputs of the tensors, those of a large body read in a thread."""
    preparation = state_of(request).preparation
    whole, length = await request.body(), json_length(request)
    tail = memoryview(whole)[len(whole) if length is None else length :]
    read = partial(read_inputs, body, names, tail, preparation.limits.max_inputs)
    if len(whole) <= SMALL_BODY_BYTES:
        return read()
    return await preparation.run(context_of(request.scope).tenant, len(whole) // BYTES_PER_COST, read)


def _head(model: str, body: InferRequest, done: Prediction) -> dict[str, object]:
    opening = done.opening
    head: dict[str, object] = {"model_name": model, "model_version": str(opening.adapter.version)}
    if body.id is not None:
        head["id"] = body.id
    if opening.num_truncated:
        head["parameters"] = {"truncated_inputs": opening.num_truncated}
    return head


async def _response(request: Request, target: ResolvedTask, answer: InferAnswer, done: Prediction) -> Response:
    headers = truncation_header(done.opening.num_truncated)
    preparation, context = state_of(request).preparation, target.context
    # The tail has no pieces if all outputs are in JSON. Its sizes are in the head.
    tail = await write_pieces(preparation, context, answer.tail())
    head = await write_pieces(preparation, context, answer.json(), len(tail))
    if not answer.is_binary:
        return JSONBytes(head, headers)
    headers = {LENGTH_HEADER: str(len(head)), **headers}
    return Response(head + tail, media_type="application/octet-stream", headers=headers)


def _versioned(model: str, version: str) -> str:
    """The reference to a version."""
    if "@" in model:
        raise InvalidInput(f"model {model[:80]!r} names a version already; the path names another one")
    return f"{model}@{version}"


def _metadata(model: str, entry: Entry, versions: list[str]) -> ModelMetadata:
    inputs = [TensorMetadata(name=name, datatype="BYTES", shape=[-1]) for name in TEXTS[: entry.task.num_texts]]
    outputs = [output.metadata for output in outputs_of(entry)]
    return ModelMetadata(name=model, versions=versions, platform=PLATFORM, inputs=inputs, outputs=outputs)


def _failing(service: Service, tenant: str) -> Mapping[str, str]:
    """Why versions are in quarantine for `tenant`, by the digests of the versions."""
    return {one.adapter.digest: one.reason for one in service.quarantine.of(tenant)}


def _ready(model: str, entry: Entry, failing: Mapping[str, str]) -> ModelReady:
    """Raises `InferenceFailed` for a version in quarantine."""
    if reason := failing.get(entry.digest):
        raise InferenceFailed(f"model {model!r} is in quarantine: {reason}")
    return ModelReady(name=model)


def _indexed(entry: Entry, failing: Mapping[str, str]) -> IndexedModel:
    reason = failing.get(entry.digest)
    state: Literal["READY", "UNAVAILABLE"] = "READY" if reason is None else "UNAVAILABLE"
    return IndexedModel(name=entry.version.name, version=str(entry.number), state=state, reason=reason or "")
