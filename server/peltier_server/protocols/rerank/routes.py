"""Routes of rerankers: Cohere's and Jina's `/v1/rerank`, and the `/rerank` of text-embeddings-inference."""

from fastapi import Request, Response
from peltier_client.protocol import (
    Parameters,
    RankedDocument,
    RankedText,
    RerankRequest,
    RerankResponse,
    RerankUsage,
)
from pydantic_core import to_json

from peltier_server.errors import TASK_ERRORS, describe_errors
from peltier_server.http.application import accept, resolve
from peltier_server.http.disconnects import cancel_on_disconnect
from peltier_server.http.scoped_route import scoped_router
from peltier_server.inference.prediction import TRUNCATION_HEADER, JSONBytes, truncation_header
from peltier_server.protocols.rerank.messages import TextRank, TextRerankRequest
from peltier_server.protocols.rerank.ranking import Asked, check_document_length, rank

_RESPONSES = {200: {"headers": TRUNCATION_HEADER}, **describe_errors(*TASK_ERRORS)}

router = scoped_router("predict", "rerank")


@router.post("/v1/rerank", response_model=RerankResponse, responses=_RESPONSES)
async def rerank(body: RerankRequest, request: Request) -> Response:
    """Sort documents by their relevance for a query: `model` is a ranking task."""
    service, texts = accept(request), body.texts
    target = resolve(request, service, body.model)
    check_document_length(target, body.max_tokens_per_doc)
    num_repeated = body.top_n if body.return_documents else 0
    asked = Asked(body.query, texts, Parameters(truncate=body.truncates), num_repeated)
    prediction, ranked = await cancel_on_disconnect(request, rank(service.predictor, target, asked))
    results = []
    for index, score in ranked[: body.top_n]:
        document = RankedText(text=texts[index]) if body.return_documents else None
        results.append(RankedDocument(index=index, relevance_score=score, document=document))
    opening = prediction.opening
    usage = RerankUsage(total_tokens=opening.num_tokens, truncated_inputs=opening.num_truncated)
    answer = RerankResponse(id=target.context.request_id, model=body.model, results=results, usage=usage)
    return JSONBytes(to_json(answer), truncation_header(opening.num_truncated))


@router.post("/rerank", response_model=list[TextRank], responses=_RESPONSES)
async def rerank_texts(body: TextRerankRequest, request: Request) -> Response:
    """Sort texts by their relevance for a query, in the shape of text-embeddings-inference."""
    service = accept(request)
    target = resolve(request, service, body.adapter_id)
    parameters = Parameters(truncate=body.truncate is not False, raw_scores=body.raw_scores)
    asked = Asked(body.query, body.texts, parameters, None if body.return_text else 0)
    prediction, ranked = await cancel_on_disconnect(request, rank(service.predictor, target, asked))
    answer = [
        TextRank(index=index, score=score, text=body.texts[index] if body.return_text else None)
        for index, score in ranked
    ]
    return JSONBytes(to_json(answer), truncation_header(prediction.opening.num_truncated))
