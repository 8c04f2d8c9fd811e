"""What is asked of a server: predictions, adapters, the server itself. `management` has what changes them.

Written once for both clients, which only carry these values over the network.
"""

import hashlib
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Literal, TypedDict

import httpx2
from pydantic import BaseModel, ConfigDict

from peltier_client.error_reader import error_from_detail
from peltier_client.errors import (
    ErrorBody,
    InvalidInput,
    PeltierError,
    Unavailable,
    UnexpectedAnswer,
)
from peltier_client.exchange import Request, page_query, raise_for_error, read_body, reader, to_json
from peltier_client.protocol import (
    Adapter,
    AdapterPage,
    AdapterVersion,
    HealthResponse,
    InfoResponse,
    MixedPredictRequest,
    PredictRequest,
    ReadyResponse,
    TaskReference,
    TextTuple,
    UploadedVersion,
    VersionList,
    check_alias,
    check_name,
)
from peltier_client.results import PredictionBody, Predictions
from peltier_client.text_reader import TextReader

_EVENTS = "text/event-stream"


class PredictOptions(TypedDict, total=False):
    """The `parameters` of a prediction, as keyword arguments. See `peltier_client.protocol.Parameters`."""

    top_k: int | None
    raw_scores: bool
    truncate: bool
    return_gates: bool
    timeout_ms: int | None
    priority: int
    answer: Literal["score", "generate"] | None
    max_new_tokens: int | None
    num_beams: int | None
    temperature: float | None
    top_p: float | None
    seed: int | None


class _MixedBody(BaseModel):
    model_config = ConfigDict(extra="ignore")

    results: list[PredictionBody | ErrorBody]


def predict(
    task: str, inputs: str | Iterable[str] | Iterable[TextTuple], options: PredictOptions
) -> Request[Predictions]:
    """Inputs for one task."""
    if isinstance(inputs, tuple) and any(isinstance(item, str) for item in inputs):
        raise InvalidInput("inputs is a tuple of texts: write [(text, pair)] for one pair, or a list for several texts")
    sent = inputs if isinstance(inputs, str) else list(inputs)
    json = to_json(PredictRequest, {"inputs": sent, "parameters": options})

    def read(response: httpx2.Response) -> Predictions:
        body = read_body(response, PredictionBody)
        _check_count(len(body.predictions), 1 if isinstance(sent, str) else len(sent))
        return Predictions(body)

    return Request("POST", f"/v1/tasks/{TaskReference.parse(task)}/predict", read, json=json)


def stream(task: str, text: str | TextTuple, options: PredictOptions) -> Request[TextReader]:
    """One input, whose text comes as it is written; what the answer's head gives is a reader of its events."""
    inputs = text if isinstance(text, str) else [text]
    json = to_json(PredictRequest, {"inputs": inputs, "parameters": options, "stream": True})

    def read(response: httpx2.Response) -> TextReader:
        raise_for_error(response)
        content_type = response.headers.get("content-type", "").partition(";")[0]
        if content_type != _EVENTS:
            raise UnexpectedAnswer(f"the server answered with {content_type!r} where events were expected")
        return TextReader()

    return Request("POST", f"/v1/tasks/{TaskReference.parse(task)}/predict", read, json=json)


def predict_many(
    items: Iterable[tuple[str, str | TextTuple]], options: PredictOptions
) -> Request[list[Predictions | PeltierError]]:
    """One input for each of any mix of tasks."""
    requests = [{"task": task, "input": input_, "parameters": options} for task, input_ in items]

    def read(response: httpx2.Response) -> list[Predictions | PeltierError]:
        results = read_body(response, _MixedBody).results
        _check_count(len(results), len(requests))
        return [error_from_detail(r.error) if isinstance(r, ErrorBody) else Predictions(r) for r in results]

    return Request("POST", "/v1/predict", read, json=to_json(MixedPredictRequest, {"requests": requests}))


def upload(
    artifact: str | PathLike[str] | bytes, name: str | None, alias: str | None = None
) -> Request[UploadedVersion]:
    """An artifact, from a path or its bytes, under `name` or its manifest's name; `alias` is to mean it at once."""

    def read(response: httpx2.Response) -> UploadedVersion:
        version = read_body(response, UploadedVersion)
        # The status says so too, for servers that do not have it in the body.
        return version.model_copy(update={"created": response.status_code == httpx2.codes.CREATED})

    form = {"name": check_name(name)} if name is not None else {}
    form |= {"alias": check_alias(alias)} if alias is not None else {}
    file = ("artifact.safetensors", artifact) if isinstance(artifact, bytes) else _named_file(Path(artifact))
    return Request("POST", "/v1/adapters", read, form=form, file=file)


def adapters(cursor: str | None) -> Request[AdapterPage]:
    """The page of adapters that `cursor` points to, the first for None."""
    return Request("GET", "/v1/adapters", reader(AdapterPage), query=page_query(cursor))


def adapter(name: str) -> Request[Adapter]:
    """One adapter."""
    return Request("GET", f"/v1/adapters/{check_name(name)}", reader(Adapter))


def versions(name: str, cursor: str | None = None) -> Request[VersionList]:
    """The page of live versions of one adapter that `cursor` points to, the newest for None."""
    return Request("GET", f"/v1/adapters/{check_name(name)}/versions", reader(VersionList), query=page_query(cursor))


def version(name: str, number: int) -> Request[AdapterVersion]:
    """One version of an adapter."""
    return Request("GET", f"/v1/adapters/{check_name(name)}/versions/{number:d}", reader(AdapterVersion))


def download(name: str, version: int) -> Request[bytes]:
    """The artifact of one version, as uploaded."""
    return Request("GET", f"/v1/adapters/{check_name(name)}/versions/{version:d}/artifact", _read_artifact)


def info() -> Request[InfoResponse]:
    """What the server runs."""
    return Request("GET", "/info", reader(InfoResponse))


def health() -> Request[HealthResponse]:
    """Whether the process is alive; asked once, because who asks wants to know now."""
    return Request("GET", "/health", reader(HealthResponse), retried=False)


def ready() -> Request[bool]:
    """Whether predictions are answered; asked once."""

    def read(response: httpx2.Response) -> bool:
        try:
            read_body(response, ReadyResponse)
        except Unavailable:
            return False
        return True

    return Request("GET", "/ready", read, retried=False)


def _named_file(path: Path) -> tuple[str, bytes]:
    return path.name, path.read_bytes()


def _check_count(num_answers: int, num_inputs: int) -> None:
    if num_answers != num_inputs:
        raise UnexpectedAnswer(f"the server gave {num_answers} answers to {num_inputs} inputs")


def _read_artifact(response: httpx2.Response) -> bytes:
    raise_for_error(response)
    expected = response.headers.get("x-adapter-digest")
    received = f"sha256:{hashlib.sha256(response.content).hexdigest()}"
    if expected is not None and received != expected:
        raise UnexpectedAnswer(f"the downloaded artifact has digest {received} where the server announced {expected}")
    return response.content
