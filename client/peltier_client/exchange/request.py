"""One HTTP exchange as a pure value: what to send, and how to read the response."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import httpx2
from pydantic import BaseModel, ValidationError

from peltier_client.errors import InvalidInput, UnexpectedAnswer
from peltier_client.exchange.error_reader import error_from_body
from peltier_client.exchange.transfer import OnProgress
from peltier_client.protocol import RequestModel

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

_PAGE_SIZE = 100


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
    json: bytes | None = None
    form: Mapping[str, str] = field(default_factory=dict)
    file: tuple[str, bytes] | None = None  # name and content of the multipart part "file"
    retried: bool = True
    on_progress: OnProgress | None = None  # of the file if there is one, else of the response


def to_json(model: type[RequestModel], values: Mapping[str, object]) -> bytes:
    """`values` as a JSON body. Raises `InvalidInput` with every rule of the protocol that they break."""
    try:
        return model.model_validate(values).model_dump_json(exclude_defaults=True).encode()
    except ValidationError as error:
        details = [_sentence(".".join(map(str, e["loc"])), e["type"], e["msg"]) for e in error.errors()]
        raise InvalidInput(details[0], details) from error


def raise_for_error(response: httpx2.Response) -> None:
    """Raise the error of a response that is not a success."""
    if not response.is_success:
        raise error_from_body(response.status_code, response.content, response.headers)


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


def page_query(cursor: str | None) -> dict[str, str | int]:
    """The query for the page at `cursor`; None is the first."""
    return {"limit": _PAGE_SIZE} | ({"cursor": cursor} if cursor is not None else {})
