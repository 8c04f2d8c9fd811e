"""Routes of rerankers: Cohere's and Jina's `/v1/rerank`, and the `/rerank` of text-embeddings-inference."""

import re
from collections.abc import Sequence
from typing import Annotated

from fastapi import Request, Response
from peltier_client.errors import InvalidInput, PeltierError
from peltier_client.protocol.predict import Parameters, Text
from peltier_client.protocol.rerank import RankedDocument, RankedText, RerankRequest, RerankResponse, RerankUsage
from peltier_client.protocol.wire import RequestModel, ResponseModel
from pydantic import Field, StrictBool

from peltier_server.http.application import accept, answer_json, resolve, task_responses
from peltier_server.http.disconnects import cancel_on_disconnect
from peltier_server.http.scoped_route import scoped_router
from peltier_server.inference.prediction import Prediction
from peltier_server.inference.prediction_request import ResolvedTask
from peltier_server.inference.predictor import Predictor
from peltier_server.protocols.tei import TruncationDirection

# Where an error names inputs of a prediction, each of which is here a document.
_INPUT = re.compile(r"^input(?= \d+: )|(?<= more )input(?=s?\)$)")

router = scoped_router("predict", "rerank")


class TextRerankRequest(RequestModel):
    """The request of text-embeddings-inference. `adapter_id` is a task reference. With `raw_scores` the scores of a
    ranking task are the outputs of its head in place of values from 0 to 1, and those of a multi-vector-embedding task
    sums of cosines in place of means. Texts are truncated unless `truncate` is false."""

    adapter_id: str
    query: Text
    texts: Annotated[list[Text], Field(min_length=1)]
    raw_scores: StrictBool = False
    return_text: StrictBool = False
    truncate: StrictBool | None = True
    truncation_direction: TruncationDirection = "right"


class TextRank(ResponseModel):
    """A text by its `index` in the request, with its score."""

    index: int
    score: float
    text: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = None


def _check_document_length(target: ResolvedTask, max_tokens: int | None) -> None:
    """Raises `InvalidInput` if documents are to have fewer tokens than the task reads."""
    task = target.entry.task
    if max_tokens is not None and max_tokens < task.max_length:
        read = "each text" if task.embeds else "only the query and its document together,"
        raise InvalidInput(
            f"max_tokens_per_doc is {max_tokens}; this task truncates {read} to {task.max_length} tokens, so it must "
            f"be at least {task.max_length}"
        )


async def _rank(
    predictor: Predictor, target: ResolvedTask, query: str, documents: Sequence[str], parameters: Parameters
) -> tuple[Prediction, list[tuple[int, float]]]:
    """The score of each document for the query, and each document's index and score, best first: by the head of a
    ranking task, or by the vectors of a multi-vector-embedding task. Documents with equal scores keep their order.
    Raises `InvalidInput` if `target` is another task."""
    task = target.entry.task
    if task.type not in ("ranking", "multi-vector-embedding"):
        name = str(target.reference)
        raise InvalidInput(
            f"task {name!r} is of type {task.type}; only ranking and multi-vector-embedding tasks rank documents"
        )
    predictor.check_count(len(documents), "documents")
    budget = predictor.open_answer(target.context)
    try:
        if task.type == "ranking":
            pairs = [(query, document) for document in documents]
            prediction = await predictor.predict(target, pairs, parameters, budget)
        else:
            prediction = await predictor.score(target, query, documents, parameters, budget)
    except PeltierError as error:
        raise _of_documents(error, len(documents)) from error
    scores = [found["score"] for found in prediction.fields]
    return prediction, sorted(enumerate(scores), key=lambda pair: -pair[1])


def _of_documents(error: PeltierError, num_documents: int) -> PeltierError:
    """The error in terms of documents, after which the query is an input of its own."""
    message, *details = (
        _INPUT.sub("document", reason.replace(f"input {num_documents}: ", "query: "))
        for reason in (error.message, *error.details)
    )
    return type(error)(message, details, retry_after=error.retry_after)


@router.post("/v1/rerank", response_model=RerankResponse, responses=task_responses())
async def rerank(body: RerankRequest, request: Request) -> Response:
    """Sort documents by their relevance for a query: `model` is a task of the type ranking or
    multi-vector-embedding."""
    texts, target = body.texts, resolve(request, body.model)
    _check_document_length(target, body.max_tokens_per_doc)
    work = _rank(accept(request).predictor, target, body.query, texts, Parameters(truncate=body.truncates))
    prediction, ranked = await cancel_on_disconnect(request, work)
    results = []
    for index, score in ranked[: body.top_n]:
        document = RankedText(text=texts[index]) if body.return_documents else None
        results.append(RankedDocument(index=index, relevance_score=score, document=document))
    opening = prediction.opening
    usage = RerankUsage(total_tokens=opening.num_tokens, truncated_inputs=opening.num_truncated)
    empty = RerankResponse(id=target.context.request_id, model=body.model, results=[], usage=usage)
    return await answer_json(request, empty.model_dump() | {"results": results}, opening.num_truncated)


@router.post("/rerank", response_model=list[TextRank], responses=task_responses())
async def rerank_texts(body: TextRerankRequest, request: Request) -> Response:
    """Sort texts by their relevance for a query, in the shape of text-embeddings-inference."""
    target = resolve(request, body.adapter_id)
    parameters = Parameters(truncate=body.truncate is not False, raw_scores=body.raw_scores)
    work = _rank(accept(request).predictor, target, body.query, body.texts, parameters)
    prediction, ranked = await cancel_on_disconnect(request, work)
    ranks = [
        TextRank(index=index, score=score, text=body.texts[index] if body.return_text else None)
        for index, score in ranked
    ]
    return await answer_json(request, ranks, prediction.opening.num_truncated)
