"""HTTP responses for all errors."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from peltier_adapters.errors import AdapterError, ArtifactError, InputError, first_of
from peltier_client.errors import (
    AdapterNotFound,
    ArtifactRefused,
    BadRequest,
    BatchNotFound,
    Conflict,
    DeadlinePassed,
    Draining,
    ErrorBody,
    FileNotFound,
    Forbidden,
    InferenceFailed,
    InvalidInput,
    NotFound,
    NotReady,
    PeltierError,
    QueueFull,
    QuotaExceeded,
    ServerError,
    StorageFull,
    TooLarge,
    TooSlow,
    TrainingNotFound,
    Unauthorized,
    Unavailable,
    VersionNotFound,
)
from peltier_store.blobs.blobs import BlobError, BlobStoreFull, BlobStoreGone
from peltier_store.registry.errors import (
    AdapterUnknown,
    BatchUnknown,
    BlobBusy,
    FileUnknown,
    InvalidRecord,
    NotRegistered,
    QuotaReached,
    RegistryConflict,
    RegistryError,
    RegistryFull,
    RegistryGone,
    RegistryRewound,
    TrainingUnknown,
    VersionUnknown,
)
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.types import Scope

from peltier_server import retry_hints

# The errors of any request of a route that needs a scope and is counted by quotas, and of one for a task.
_SCOPED_ERRORS = (Unauthorized, Forbidden, InvalidInput, QuotaExceeded, NotReady, Draining)
TASK_ERRORS = (
    AdapterNotFound,
    VersionNotFound,
    InferenceFailed,
    QueueFull,
    Unavailable,
    DeadlinePassed,
)
_MAX_SHOWN_REASONS = 100
_MAX_SHOWN_CHARS = 80
# Callers choose the names of keys. Those of the protocol are much shorter.
_MAX_SHOWN_PLACE_CHARS = 400
# A store without room, and one that is not there: known conditions, which need no traceback.
STORE_FULL = (BlobStoreFull, RegistryFull)
STORE_GONE = (BlobStoreGone, RegistryGone)
_Known = type[AdapterError] | tuple[type[AdapterError], ...]
# What callers read of errors of the store: a sentence in place of the error's own, which may say what is for the
# operator alone, and the seconds after which they may ask again. Children before their parents.
_OF_THE_STORE: tuple[tuple[_Known, type[PeltierError], str | None, float | None], ...] = (
    (AdapterUnknown, AdapterNotFound, None, None),
    (VersionUnknown, VersionNotFound, None, None),
    (FileUnknown, FileNotFound, None, None),
    (TrainingUnknown, TrainingNotFound, None, None),
    (BatchUnknown, BatchNotFound, None, None),
    (NotRegistered, NotFound, None, None),
    (RegistryConflict, Conflict, None, None),
    (InvalidRecord, InvalidInput, None, None),
    (QuotaReached, StorageFull, None, retry_hints.STORE_FULL),
    (BlobBusy, Unavailable, None, retry_hints.SOON),
    (
        STORE_FULL,
        StorageFull,
        "the server's store is full; published adapters still answer",
        retry_hints.STORE_FULL,
    ),
    (
        STORE_GONE,
        Unavailable,
        "the server's store is gone, so it accepts no changes; loaded adapters still answer",
        retry_hints.STORE_GONE,
    ),
    (
        RegistryRewound,
        Unavailable,
        "the server reads its registry again, which lacks changes",
        retry_hints.SOON,
    ),
    ((RegistryError, BlobError), Unavailable, "the server's store failed; its log has the reason", retry_hints.SOON),
)


class ClientGone(HTTPException):
    """The caller has disconnected."""

    status = 499

    def __init__(self) -> None:
        super().__init__(self.status)


class RefusedBody(HTTPException):
    """A body is refused while it is read. The framework would turn any other exception into a 400."""

    def __init__(self, error: PeltierError) -> None:
        super().__init__(error.status, error.message)
        self.error = error


@dataclass(frozen=True)
class ErrorShape:
    """The form of a protocol's errors: `body` makes a `model` of an error. Errors at `paths` and below `folders` have
    it. Where an error has a status of `statuses`, the protocol has the one that stands there."""

    model: type[BaseModel]
    body: Callable[[PeltierError], BaseModel]
    paths: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    statuses: Mapping[int, int] = field(default_factory=dict)

    def speaks(self, path: str) -> bool:
        """Whether errors at `path` have this form."""
        return path in self.paths or path.startswith(self.folders)

    def status(self, error: type[PeltierError] | PeltierError) -> int:
        """The HTTP status of an error."""
        return self.statuses.get(error.status, error.status)


# The server's own form, for all paths of no other protocol.
PELTIER_ERRORS = ErrorShape(ErrorBody, PeltierError.body)


def error_response(error: PeltierError, scope: Scope, headers: Mapping[str, str] | None = None) -> Response:
    """The HTTP response for the request of `scope`, in the form of its path's protocol."""
    extra = dict(headers or {})
    if error.retry_after is not None:
        # The header has whole seconds, and 0 would mean an immediate retry.
        extra["retry-after"] = str(max(1, round(error.retry_after)))
    if error.status == HTTPStatus.UNAUTHORIZED:
        extra["www-authenticate"] = "Bearer"
    shape = next((shape for shape in _shapes(scope) if shape.speaks(scope["path"])), PELTIER_ERRORS)
    return JSONResponse(shape.body(error).model_dump(), shape.status(error), extra)


def _shapes(scope: Scope) -> Sequence[ErrorShape]:
    app: FastAPI | None = scope.get("app")
    return () if app is None else app.state.error_shapes


def to_wire(error: Exception) -> PeltierError:
    """The public error for any exception."""
    match error:
        case PeltierError():
            return error
        case ArtifactError():
            return ArtifactRefused(f"the artifact is refused: {error}", error.reasons)
        case InputError():
            return InvalidInput(str(error))
        case RequestValidationError():
            return _from_validation(error)
        case RefusedBody():
            return error.error
        case HTTPException():
            return _from_http(error)
        case AdapterError():
            return _from_store(error)
        case _:
            return _failure()


def describe_errors(*errors: type[PeltierError], shape: ErrorShape = PELTIER_ERRORS) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route that may raise `errors`, for OpenAPI."""
    described: dict[int | str, dict[str, Any]] = {}
    # Every route may refuse an unreadable body.
    unread: tuple[type[PeltierError], ...] = (BadRequest, TooSlow, TooLarge)
    for error in (*unread, *errors):
        status = shape.status(error)
        known = described.setdefault(status, {"model": shape.model, "description": ""})
        known["description"] += f"{' · ' if known['description'] else ''}`{error.code}`: {error.__doc__}"
    if 422 not in described and shape is not PELTIER_ERRORS:
        # The framework would describe a 422, which such a route never returns.
        described["4XX"] = {"model": shape.model, "description": "Any other refusal."}
    return described


def scoped_errors(*errors: type[PeltierError], shape: ErrorShape = PELTIER_ERRORS) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route that needs a scope and is counted by quotas, and may raise `errors` besides."""
    return describe_errors(*_SCOPED_ERRORS, *errors, shape=shape)


def operator_errors(*errors: type[PeltierError]) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route for the operator, which no quota counts, and which may raise `errors` besides."""
    return describe_errors(*(one for one in _SCOPED_ERRORS if one is not QuotaExceeded), *errors)


def _from_store(error: AdapterError) -> PeltierError:
    for known, kind, sentence, retry_after in _OF_THE_STORE:
        if isinstance(error, known):
            return kind(sentence or str(error), retry_after=retry_after)
    return _failure()


def _failure() -> ServerError:
    return ServerError("the server failed; its log has the reason under this request's x-request-id")


def _from_http(error: HTTPException) -> PeltierError:
    if error.status_code == HTTPStatus.NOT_FOUND:
        return NotFound("this address does not exist; /docs lists all addresses")
    # The framework says this of forms only.
    return BadRequest(
        "the form in the body cannot be read: it is malformed, or its parts are more or larger than this server accepts"
    )


def undeclared() -> BadRequest:
    """The error of a body whose content type is not JSON's."""
    return BadRequest("the body is not declared as JSON; send it with content-type: application/json")


def _from_validation(error: RequestValidationError) -> PeltierError:
    problems = error.errors()
    if problems[0]["loc"] == ("body",) and isinstance(problems[0].get("input"), bytes):
        return undeclared()
    reasons = [_reason(problem) for problem in problems[:_MAX_SHOWN_REASONS]]
    return InvalidInput(first_of(reasons[0], len(problems)), reasons)


def _reason(problem: Mapping[str, Any]) -> str:
    # Without the first part of the location, which is query, path or body.
    place = ".".join(str(part) for part in problem["loc"][1:])[:_MAX_SHOWN_PLACE_CHARS] or "the body"
    value = problem.get("input")
    match problem["type"]:
        case "missing":
            return f"{place} is missing"
        case "extra_forbidden":
            return f"{place} is unknown here"
    rule = str(problem["msg"]).removeprefix("Value error, ")
    shown = (
        f" is {value!r}" if isinstance(value, bool | int | float | str) and len(str(value)) <= _MAX_SHOWN_CHARS else ""
    )
    return f"{place}{shown}: {rule[:1].lower()}{rule[1:]}"
