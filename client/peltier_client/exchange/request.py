"""One HTTP exchange as a pure value: what to send, and how to read the response."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Generic, Protocol, TypeVar
from uuid import uuid4

import httpx2
from pydantic import BaseModel, ValidationError

from peltier_client.errors import (
    BY_CODE,
    BY_STATUS,
    BadRequest,
    ErrorBody,
    ErrorDetail,
    InvalidInput,
    PeltierError,
    ServerError,
    UnexpectedAnswer,
)
from peltier_client.exchange.transfer import OnProgress
from peltier_client.protocol.wire import RequestModel

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

# A server answers a repeated request with the same key as it has answered the first.
IDEMPOTENCY_HEADER = "idempotency-key"
_PAGE_SIZE = 100
_EVENTS = "text/event-stream"
# Gateways answer these in place of the server, with bodies of their own.
_GATEWAY_STATUSES = frozenset({401, 403, 413, 429, 503, 504})


class Page(Protocol):
    """One page of a list."""

    @property
    def next_cursor(self) -> str | None:
        """The cursor of the next page; None on the last page."""


@dataclass(frozen=True)
class Request(Generic[T]):
    """One HTTP request and the pure function that turns its response into a `T` or raises a `PeltierError`."""

    method: str
    path: str
    read: Callable[[httpx2.Response], T]
    query: Mapping[str, str | int] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    json: bytes | None = None
    form: Mapping[str, str] = field(default_factory=dict)
    file: tuple[str, bytes] | None = None  # name and content of the multipart part "file"
    report: tuple[str, bytes] | None = None  # those of the part "report" beside it
    task: str | None = None  # the reference to the task; of several tasks the first
    retried: bool = True
    on_progress: OnProgress | None = None  # of the file if there is one, else of the response


def to_json(model: type[RequestModel], values: Mapping[str, object]) -> bytes:
    """`values` as a JSON body. Raises `InvalidInput` with every rule of the protocol that they break."""
    try:
        return model.model_validate(values).model_dump_json(exclude_defaults=True).encode()
    except ValidationError as error:
        details = [_sentence(".".join(map(str, e["loc"])), e["type"], e["msg"]) for e in error.errors()]
        raise InvalidInput(details[0], details) from error


def new_key() -> dict[str, str]:
    """The headers of a request that may be sent again after a broken connection."""
    return {IDEMPOTENCY_HEADER: str(uuid4())}


def raise_for_error(response: httpx2.Response) -> None:
    """Raise the error of a response that is not a success."""
    if not response.is_success:
        raise error_from_body(response.status_code, response.content, response.headers)


def raise_unless_events(response: httpx2.Response) -> None:
    """Raise the error of a response that is not a stream of events."""
    raise_for_error(response)
    content_type = response.headers.get("content-type", "").partition(";")[0]
    if content_type != _EVENTS:
        raise UnexpectedAnswer(f"the server answered with {content_type!r} where events were expected")


def read_body(response: httpx2.Response, model: type[M]) -> M:
    """The body of a response. Raises the error of one that is not a success or not the expected body."""
    raise_for_error(response)
    try:
        return model.model_validate_json(response.content)
    except ValidationError as error:
        first = error.errors()[0]
        reason = _sentence(".".join(map(str, first["loc"])) or "body", first["type"], first["msg"])
        unexpected = UnexpectedAnswer(f"the server's answer is not the expected {model.__name__}: {reason}")
        unexpected.status = response.status_code
        raise unexpected from error


def reader(model: type[M]) -> Callable[[httpx2.Response], M]:
    """`read_body` for one model."""
    return lambda response: read_body(response, model)


def _sentence(where: str, kind: str, message: str) -> str:
    if kind == "extra_forbidden":
        return f"{where} is not a known key"
    sentence = f"{message[:1].lower()}{message[1:]}"
    return f"{where}: {sentence}" if where else sentence.removeprefix("value error, ")


def read_content(response: httpx2.Response) -> bytes:
    """The bytes of a response. Raises the error of one that is not a success."""
    raise_for_error(response)
    return response.content


def page_request(path: str, model: type[M], **query: str) -> "Request[M]":
    """The request for the first page of a list."""
    return Request("GET", path, reader(model), query={"limit": _PAGE_SIZE, **query})


def error_from_body(status: int, body: bytes, headers: Mapping[str, str]) -> PeltierError:
    """The exception for an error response; never raises, whatever the body is. `headers` have lower-case names.

    A code that this client does not know gives the class of its status. A body that is not Peltier's gives an
    `UnexpectedAnswer`, or the class of its status if gateways answer with it.
    """
    retry_after = retry_after_seconds(headers.get("retry-after"))
    try:
        detail = ErrorBody.model_validate_json(body).error
    except ValidationError:
        return _error_without_body(status, retry_after)
    return error_from_detail(detail, status=status, retry_after=retry_after)


def error_from_detail(detail: ErrorDetail, *, status: int = 500, retry_after: float | None = None) -> PeltierError:
    """The exception for `detail`; `status` chooses the class if the code is unknown."""
    cls = BY_CODE.get(detail.code)
    if cls is not None:
        return cls(detail.message, detail.details, retry_after=retry_after)
    error = _class_of(status)(detail.message, detail.details, retry_after=retry_after)
    error.code, error.status = detail.code, status
    return error


def retry_after_seconds(value: str | None) -> float | None:
    """Seconds from now of a `Retry-After` header in either of its forms; None if it is absent or unreadable."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    # A date with the zone "-0000" is parsed without a zone; HTTP dates are in UTC.
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (aware - datetime.now(UTC)).total_seconds())


def _error_without_body(status: int, retry_after: float | None) -> PeltierError:
    message = f"the server answered {status} without a Peltier error body; is this the address of a Peltier server?"
    cls = BY_STATUS[status] if status in _GATEWAY_STATUSES else UnexpectedAnswer
    error = cls(message, retry_after=retry_after)
    error.status = status
    return error


def _class_of(status: int) -> type[PeltierError]:
    return BY_STATUS.get(status, BadRequest if 400 <= status < 500 else ServerError)
