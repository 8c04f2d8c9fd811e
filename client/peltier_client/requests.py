"""Every call of the API as a pure value: what to send, and how to read what comes back.

Written once for both clients, which only carry these values over the network.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Generic, Literal, TypedDict, TypeVar

import httpx2
from pydantic import BaseModel, ConfigDict, ValidationError

from peltier_client.errors import (
    ErrorBody,
    InvalidInput,
    PeltierError,
    Unavailable,
    UnexpectedAnswer,
    error_from_body,
    error_from_detail,
)
from peltier_client.protocol import (
    Adapter,
    AdapterPage,
    AdapterVersion,
    HealthResponse,
    InfoResponse,
    MixedPredictRequest,
    PredictRequest,
    ReadyResponse,
    RequestModel,
    TaskReference,
    TextTuple,
    VersionList,
    check_name,
)
from peltier_client.results import PredictionBody, Predictions
from peltier_client.text_reader import TextReader

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

PAGE_SIZE = 100
_EVENTS = "text/event-stream"


class PredictOptions(TypedDict, total=False):
    """The `parameters` of a prediction, as keyword arguments. See `peltier_client.protocol.Parameters`."""

    top_k: int | None
    raw_scores: bool
    truncate: bool
    return_gates: bool
    timeout_ms: int | None
    answer: Literal["score", "generate"] | None
    max_new_tokens: int | None
    num_beams: int | None
    temperature: float | None
    top_p: float | None
    seed: int | None


@dataclass(frozen=True)
class Request(Generic[T]):
    """One HTTP request and the pure function that turns its answer into a `T` or raises a `PeltierError`."""

    method: str
    path: str
    read: Callable[[httpx2.Response], T]
    query: Mapping[str, str | int] = field(default_factory=dict)
    json: bytes | None = None
    form: Mapping[str, str] = field(default_factory=dict)
    file: tuple[str, bytes] | None = None  # name and content of the multipart part "file"
    retried: bool = True


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
    json = _json(PredictRequest, {"inputs": sent, "parameters": options})

    def read(response: httpx2.Response) -> Predictions:
        body = _read(response, PredictionBody)
        _check_count(len(body.predictions), 1 if isinstance(sent, str) else len(sent))
        return Predictions(body)

    return Request("POST", f"/v1/tasks/{TaskReference.parse(task)}/predict", read, json=json)


def stream(task: str, text: str | TextTuple, options: PredictOptions) -> Request[TextReader]:
    """One input, whose text comes as it is written; what the answer's head gives is a reader of its events."""
    inputs = text if isinstance(text, str) else [text]
    json = _json(PredictRequest, {"inputs": inputs, "parameters": options, "stream": True})

    def read(response: httpx2.Response) -> TextReader:
        _raise_for_error(response)
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
        results = _read(response, _MixedBody).results
        _check_count(len(results), len(requests))
        return [error_from_detail(r.error) if isinstance(r, ErrorBody) else Predictions(r) for r in results]

    return Request("POST", "/v1/predict", read, json=_json(MixedPredictRequest, {"requests": requests}))


def upload(artifact: str | PathLike[str] | bytes, name: str | None) -> Request[AdapterVersion]:
    """An artifact, from a path or its bytes, under `name` or the name in its manifest."""
    form = {"name": check_name(name)} if name is not None else {}
    file = ("artifact.safetensors", artifact) if isinstance(artifact, bytes) else _named_file(Path(artifact))
    return Request("POST", "/v1/adapters", _reader(AdapterVersion), form=form, file=file)


def adapters(cursor: str | None) -> Request[AdapterPage]:
    """The page of adapters that `cursor` points to, the first for None."""
    query: dict[str, str | int] = {"limit": PAGE_SIZE} | ({"cursor": cursor} if cursor is not None else {})
    return Request("GET", "/v1/adapters", _reader(AdapterPage), query=query)


def adapter(name: str) -> Request[Adapter]:
    """One adapter."""
    return Request("GET", f"/v1/adapters/{check_name(name)}", _reader(Adapter))


def versions(name: str) -> Request[list[AdapterVersion]]:
    """The live versions of one adapter."""

    def read(response: httpx2.Response) -> list[AdapterVersion]:
        return _read(response, VersionList).versions

    return Request("GET", f"/v1/adapters/{check_name(name)}/versions", read)


def download(name: str, version: int) -> Request[bytes]:
    """The artifact of one version, as uploaded."""
    return Request("GET", f"/v1/adapters/{check_name(name)}/versions/{version:d}/artifact", _read_artifact)


def delete(task: str) -> Request[None]:
    """An adapter with all its versions (`name`), or one version of it (`name@3`)."""
    reference = TaskReference.parse(task)
    if reference.tenant is not None or reference.alias is not None:
        raise InvalidInput(f"task {task!r} cannot be deleted: name an adapter of your own, or one version as name@3")
    version = f"/versions/{reference.version}" if reference.version is not None else ""
    return Request("DELETE", f"/v1/adapters/{reference.name}{version}", _raise_for_error)


def info() -> Request[InfoResponse]:
    """What the server runs."""
    return Request("GET", "/info", _reader(InfoResponse))


def health() -> Request[HealthResponse]:
    """Whether the process is alive; asked once, because who asks wants to know now."""
    return Request("GET", "/health", _reader(HealthResponse), retried=False)


def ready() -> Request[bool]:
    """Whether predictions are answered; asked once."""

    def read(response: httpx2.Response) -> bool:
        try:
            _read(response, ReadyResponse)
        except Unavailable:
            return False
        return True

    return Request("GET", "/ready", read, retried=False)


def _named_file(path: Path) -> tuple[str, bytes]:
    return path.name, path.read_bytes()


def _json(model: type[RequestModel], values: Mapping[str, object]) -> bytes:
    try:
        return model.model_validate(values).model_dump_json(exclude_defaults=True).encode()
    except ValidationError as error:
        details = [_sentence(".".join(map(str, e["loc"])), e["type"], e["msg"]) for e in error.errors()]
        raise InvalidInput(details[0], details) from error


def _sentence(where: str, kind: str, message: str) -> str:
    if kind == "extra_forbidden":
        return f"{where} is not a known key"
    return f"{where}: {message[:1].lower()}{message[1:]}"


def _raise_for_error(response: httpx2.Response) -> None:
    if not response.is_success:
        raise error_from_body(response.status_code, response.content, response.headers)


def _read(response: httpx2.Response, model: type[M]) -> M:
    _raise_for_error(response)
    try:
        return model.model_validate_json(response.content)
    except ValidationError as error:
        first = error.errors()[0]
        reason = _sentence(".".join(map(str, first["loc"])) or "body", first["type"], first["msg"])
        unexpected = UnexpectedAnswer(f"the server's answer is not the expected {model.__name__}: {reason}")
        unexpected.status = response.status_code
        raise unexpected from error


def _reader(model: type[M]) -> Callable[[httpx2.Response], M]:
    return lambda response: _read(response, model)


def _check_count(num_answers: int, num_inputs: int) -> None:
    if num_answers != num_inputs:
        raise UnexpectedAnswer(f"the server gave {num_answers} answers to {num_inputs} inputs")


def _read_artifact(response: httpx2.Response) -> bytes:
    _raise_for_error(response)
    expected = response.headers.get("x-adapter-digest")
    received = f"sha256:{hashlib.sha256(response.content).hexdigest()}"
    if expected is not None and received != expected:
        raise UnexpectedAnswer(f"the downloaded artifact has digest {received} where the server announced {expected}")
    return response.content
