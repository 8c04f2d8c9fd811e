"""Routes of OpenAI's API."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Annotated, Any

from fastapi import Query, Request, Response
from peltier_client.errors import AdapterNotFound, VersionNotFound
from peltier_client.protocol.names import BACKBONE_TASK

from peltier_server.catalog.published import Entry, Published
from peltier_server.errors import TASK_ERRORS, scoped_errors
from peltier_server.http.application import (
    Accepted,
    Context,
    accept,
    answer_json,
    listed,
    resolve,
    resolve_embedding,
    state_of,
    task_responses,
)
from peltier_server.http.disconnects import begin, cancel_on_disconnect
from peltier_server.http.events import DONE, MEDIA_TYPE, EventResponse, event, until_error
from peltier_server.http.scoped_route import scoped_router
from peltier_server.inference.backbone_task import BackboneTask
from peltier_server.inference.text_stream import StopSequenceStream
from peltier_server.protocols.openai.completer import complete, stream_completion
from peltier_server.protocols.openai.embeddings import EmbeddingRequest, EmbeddingResponse, embeddings_answer
from peltier_server.protocols.openai.errors import OPENAI_ERRORS
from peltier_server.protocols.openai.messages import (
    Choice,
    Completion,
    CompletionRequest,
    CompletionUsage,
    Model,
    ModelList,
    StreamOptions,
)
from peltier_server.service import Service

_OF_ONE_MODEL = (AdapterNotFound, VersionNotFound)
_PAGE = 1000
# Clients of OpenAI's own list request only one page, so the default page is long.
MAX_MODELS = 10_000
_STREAMED: dict[str, Any] = {
    "description": "The answers; with `stream` chunks of one answer in events.",
    "content": {MEDIA_TYPE: {"schema": {"type": "string"}}},
}

ModelLimit = Annotated[int, Query(ge=1, le=MAX_MODELS, description="How many models at most.")]
After = Annotated[str, Query(max_length=64, description="The `id` of the last model of the page before.")]

router = scoped_router("predict", "openai", "/v1")


@router.post(
    "/completions",
    response_model=Completion,
    responses={200: _STREAMED, **scoped_errors(*TASK_ERRORS, shape=OPENAI_ERRORS)},
)
async def create_completion(body: CompletionRequest, request: Request) -> Response:
    """Continue prompts, or rather answer them: `model` is a task on T5, the prompt its input."""
    service = accept(request)
    target = resolve(request, body.model)
    make = partial(Completion, id=f"cmpl-{target.context.request_id}", created=int(time.time()), model=body.model)
    if not body.stream:
        preparation = state_of(request).preparation
        done = await cancel_on_disconnect(request, complete(preparation, service.predictor, target, body))
        answer = make(choices=[], usage=done.usage).model_dump()
        return await answer_json(request, answer | {"choices": done.choices})
    text = stream_completion(service.predictor, target, body)
    await begin(request, text)
    events = until_error(_events(text, make, body.stream_options), lambda error: event(OPENAI_ERRORS.body(error)))
    return EventResponse(events, {}, text.close)


@router.post("/embeddings", response_model=EmbeddingResponse, responses=task_responses(OPENAI_ERRORS))
async def create_embeddings(body: EmbeddingRequest, request: Request) -> Response:
    """Embed texts: `model` is a task of dense, sparse or multi-vector embeddings, or `_backbone` for the backbone
    without an adapter."""
    service = accept(request)
    target = resolve_embedding(request, body.model, ("embedding", "sparse-embedding", "multi-vector-embedding"))
    budget = service.predictor.open_answer(target.context, base64=body.encoding_format == "base64")
    work = service.predictor.predict(target, listed(body.input), body.parameters, budget)
    done = await cancel_on_disconnect(request, work)
    return await answer_json(request, embeddings_answer(body, done), done.opening.num_truncated)


@router.get("/models", response_model=ModelList, responses=scoped_errors(shape=OPENAI_ERRORS))
async def list_models(
    request: Request, context: Context, service: Accepted, limit: ModelLimit = MAX_MODELS, after: After = ""
) -> Response:
    """The adapters of the caller, on T5 or not, in order of name, after `_backbone`; those that follow `after`."""
    models, last = list[Model](), "" if after == BACKBONE_TASK else after
    if not after and BackboneTask.refusal(service.backbone.config) is None:
        models.append(_model(BACKBONE_TASK, service.predictor.resolve(context, BACKBONE_TASK).entry))
    while len(models) <= limit and (page := _page(service, context.tenant, last)):
        models += [_model(published.name, published.newest) for published in page]
        last = models[-1].id
        # Lets other tasks of the event loop run between two pages.
        await asyncio.sleep(0)
    answer = ModelList(data=[], has_more=len(models) > limit).model_dump()
    return await answer_json(request, answer | {"data": models[:limit]})


@router.get("/models/{model}", responses=scoped_errors(*_OF_ONE_MODEL, shape=OPENAI_ERRORS))
async def get_model(model: str, context: Context, service: Accepted) -> Model:
    """One adapter, or one version of it (`name@3`)."""
    return _model(model, service.predictor.resolve(context, model).entry)


async def _events(
    text: StopSequenceStream, make: Callable[..., Completion], options: StreamOptions | None
) -> AsyncIterator[bytes]:
    async for piece in text.pieces():
        yield event(make(choices=[Choice(index=0, text=piece, finish_reason=None)]))
    yield event(make(choices=[Choice(index=0, text="", finish_reason=text.finish_reason)]))
    if options is not None and options.include_usage:
        yield event(make(choices=[], usage=CompletionUsage.of(*text.num_tokens)))
    yield DONE


def _page(service: Service, tenant: str, after: str) -> list[Published]:
    return service.catalog.page(tenant, after=after, containing="", limit=_PAGE)


def _model(name: str, entry: Entry) -> Model:
    version = entry.version
    return Model(id=name, created=int(version.created_at.timestamp()), owned_by=version.tenant)
