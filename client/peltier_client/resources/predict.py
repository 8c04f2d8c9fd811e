"""Requests for predictions: of one task, of several tasks, and of one streamed text."""

from collections.abc import Iterable
from typing import Literal, TypedDict

import httpx2
from pydantic import BaseModel, ConfigDict

from peltier_client.errors import ErrorBody, InvalidInput, PeltierError, UnexpectedAnswer
from peltier_client.exchange.request import Request, error_from_detail, raise_unless_events, read_body, to_json
from peltier_client.exchange.results import PredictionBody, Predictions, TextReader
from peltier_client.protocol.names import TaskReference
from peltier_client.protocol.predict import Aggregation, MixedPredictRequest, Precision, PredictRequest, TextTuple
from peltier_client.protocol.rerank import RankedDocument, RerankRequest, RerankResponse


class PredictOptions(TypedDict, total=False):
    """The `parameters` of a prediction, as keyword arguments. See `peltier_client.protocol.predict.Parameters`."""

    top_k: int | None
    raw_scores: bool
    dimensions: int | None
    precision: Precision
    prompt_name: str | None
    truncate: bool
    return_gates: bool
    timeout_ms: int | None
    priority: int
    stride: int | None
    aggregation: Aggregation
    words: Literal["tokenizer", "spaces"]
    answer: Literal["score", "generate"] | None
    max_new_tokens: int | None
    num_beams: int | None
    temperature: float | None
    top_p: float | None
    seed: int | None


class _MixedBody(BaseModel):
    model_config = ConfigDict(extra="ignore")

    results: list[PredictionBody | ErrorBody]
    tasks: list[str] = []


def predict(
    task: str, inputs: str | Iterable[str] | Iterable[TextTuple], options: PredictOptions
) -> Request[Predictions]:
    if isinstance(inputs, tuple) and any(isinstance(item, str) for item in inputs):
        raise InvalidInput("inputs is a tuple of texts; write [(text, pair)] for one pair, or a list for several texts")
    sent = inputs if isinstance(inputs, str) else list(inputs)
    json = to_json(PredictRequest, {"inputs": sent, "parameters": options})

    def read(response: httpx2.Response) -> Predictions:
        body = read_body(response, PredictionBody)
        _check_count(len(body.predictions), 1 if isinstance(sent, str) else len(sent))
        return Predictions(body, response.headers.get("x-request-id", ""))

    return Request("POST", f"/v1/tasks/{TaskReference.parse(task)}/predict", read, json=json, task=task)


def embed(task: str, texts: str | Iterable[str], options: PredictOptions) -> Request[list[list[float]]]:
    asked = predict(task, texts, options)
    return Request(
        "POST", asked.path, lambda response: _vectors(task, asked.read(response)), json=asked.json, task=task
    )


def _vectors(task: str, predictions: Predictions) -> list[list[float]]:
    found = [list[float](one.embedding) for one in predictions if one.embedding is not None]
    if len(found) < len(predictions):
        raise InvalidInput(f"task {task!r} does not embed texts")
    return found


def stream(task: str, text: str | TextTuple, options: PredictOptions) -> Request[TextReader]:
    """Generate the text for one input; the response's head is read into a reader of its events."""
    inputs = text if isinstance(text, str) else [text]
    json = to_json(PredictRequest, {"inputs": inputs, "parameters": options, "stream": True})

    def read(response: httpx2.Response) -> TextReader:
        raise_unless_events(response)
        return TextReader()

    return Request("POST", f"/v1/tasks/{TaskReference.parse(task)}/predict", read, json=json, task=task)


def predict_mixed(
    items: Iterable[tuple[str, str | TextTuple]], options: PredictOptions
) -> Request[list[Predictions | PeltierError]]:
    """Predict one input each for any tasks."""
    requests = [{"task": task, "input": input_, "parameters": options} for task, input_ in items]

    def read(response: httpx2.Response) -> list[Predictions | PeltierError]:
        body = read_body(response, _MixedBody)
        _check_count(len(body.results), len(requests))
        return _results(body, response)

    json = to_json(MixedPredictRequest, {"requests": requests})
    return Request("POST", "/v1/predict", read, json=json, task=str(requests[0]["task"]))


def predict_tasks(
    tasks: str | Iterable[str], input_: str | TextTuple, options: PredictOptions
) -> Request[dict[str, Predictions | PeltierError]]:
    """Predict one input for several tasks and groups of tasks."""
    named = [tasks] if isinstance(tasks, str) else list(tasks)
    sent = {"tasks": named, "input": input_} | ({"parameters": options} if options else {})

    def read(response: httpx2.Response) -> dict[str, Predictions | PeltierError]:
        body = read_body(response, _MixedBody)
        _check_count(len(body.results), len(body.tasks))
        return dict(zip(body.tasks, _results(body, response), strict=True))

    return Request("POST", "/v1/predict", read, json=to_json(MixedPredictRequest, sent), task=named[0])


def _results(body: _MixedBody, response: httpx2.Response) -> list[Predictions | PeltierError]:
    request_id = response.headers.get("x-request-id", "")
    return [
        error_from_detail(one.error) if isinstance(one, ErrorBody) else Predictions(one, request_id, row)
        for row, one in enumerate(body.results)
    ]


def _check_count(num_answers: int, num_inputs: int) -> None:
    if num_answers != num_inputs:
        raise UnexpectedAnswer(f"the server gave {num_answers} answers to {num_inputs} inputs")


def rerank(task: str, query: str, documents: Iterable[str], top_n: int | None) -> Request[list[RankedDocument]]:
    json = to_json(RerankRequest, {"model": task, "query": query, "documents": list(documents), "top_n": top_n})

    def read(response: httpx2.Response) -> list[RankedDocument]:
        return read_body(response, RerankResponse).results

    return Request("POST", "/v1/rerank", read, json=json, task=task)
