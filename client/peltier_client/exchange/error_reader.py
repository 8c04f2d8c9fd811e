"""From an error response to an exception."""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from pydantic import ValidationError

from peltier_client.errors import (
    BY_CODE,
    BY_STATUS,
    BadRequest,
    ErrorBody,
    ErrorDetail,
    PeltierError,
    ServerError,
    UnexpectedAnswer,
)

# Gateways answer these in place of the server, with bodies of their own.
_GATEWAY_STATUSES = frozenset({401, 403, 413, 429, 503, 504})


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
