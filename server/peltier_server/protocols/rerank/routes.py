"""Routes of rerankers: Cohere's and Jina's `/v1/rerank`, and the `/rerank` of text-embeddings-inference."""

from fastapi import Request, Response
from peltier_client.errors import (
    AdapterNotFound,
    DeadlinePassed,
    Draining,
    Forbidden,
    InferenceFailed,
    InvalidInput,
    NotReady,
    QueueFull,
    QuotaExceeded,
    Unauthorized,
    Unavailable,
    VersionNotFound,
)
from peltier_client.protocol import (
    Parameters,
    RankedDocument,
    RankedText,
    RerankRequest,
    RerankResponse,
    RerankUsage,
)
from pydantic_core import to_json

from peltier_server.errors import describe_errors
from peltier_server.http.dependencies import accept, cancel_on_disconnect, resolve
from peltier_server.http.json_bytes import JSONBytes
from peltier_server.http.scoped_route import scoped_router
from peltier_server.protocols.rerank.messages import TextRank, TextRerankRequest
from peltier_server.protocols.rerank.ranking import rank

_ERRORS = describe_errors(
    Unauthorized, Forbidden, InvalidInput, QuotaExceeded, NotReady, Draining, AdapterNotFound, VersionNotFound,
    InferenceFailed, QueueFull, Unavailable, DeadlinePassed,
)  # fmt: skip

router = scoped_router("predict", "rerank")


@router.post("/v1/rerank", response_model=RerankResponse, responses=_ERRORS)
async def rerank(body: RerankRequest, request: Request) -> Response:
    """Sort documents by their relevance for a query: `model` is a ranking task."""
    service, texts = accept(request), body.texts
    target = resolve(request, service, body.model)
    work = rank(service.predictor, target, body.query, texts, Parameters(truncate=body.truncate))
    prediction, ranked = await cancel_on_disconnect(request, work)
    results = []
    for index, score in ranked[: body.top_n]:
        document = RankedText(text=texts[index]) if body.return_documents else None
        results.append(RankedDocument(index=index, relevance_score=score, document=document))
    opening = prediction.opening
    usage = RerankUsage(total_tokens=opening.num_tokens, truncated_inputs=opening.num_truncated)
    answer = RerankResponse(id=target.context.request_id, model=body.model, results=results, usage=usage)
    return JSONBytes(to_json(answer), {})


@router.post("/rerank", response_model=list[TextRank], responses=_ERRORS)
async def rerank_texts(body: TextRerankRequest, request: Request) -> Response:
    """Sort texts by their relevance for a query, in the shape of text-embeddings-inference."""
    service = accept(request)
    target = resolve(request, service, body.adapter_id)
    parameters = Parameters(truncate=body.truncate, raw_scores=body.raw_scores)
    work = rank(service.predictor, target, body.query, body.texts, parameters)
    _, ranked = await cancel_on_disconnect(request, work)
    answer = [
        TextRank(index=index, score=score, text=body.texts[index] if body.return_text else None)
        for index, score in ranked
    ]
    return JSONBytes(to_json(answer), {})
