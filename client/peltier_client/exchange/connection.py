"""What both clients share below the API: connecting, sending and retrying."""

import logging
import re
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import httpx2

from peltier_client.errors import ConnectionFailed, InvalidInput, PeltierError, QuotaExceeded, TimedOut, Unavailable
from peltier_client.exchange.request import IDEMPOTENCY_HEADER, Request
from peltier_client.exchange.request_ids import REQUEST_ID_HEADER, foreign_request_id, new_request_id
from peltier_client.exchange.transfer import ReportedFile
from peltier_client.protocol.session import OPEN_TENANT, SESSION_HEADER, session_id

logger = logging.getLogger(__name__)
# stamina logs each retry as a warning, which Python writes to stderr where a program has configured no logging.
logging.getLogger("stamina").addHandler(logging.NullHandler())

DEFAULT_URL = "http://127.0.0.1:8000"
DEFAULT_TIMEOUT_SECONDS = 30.0
DEFAULT_ATTEMPTS = 5
# If a server asks for a longer pause, its error is raised at once with the pause in `retry_after`.
MAX_RETRY_AFTER_SECONDS = 30.0
MAX_RETRYING_SECONDS = 60.0
# Below the five seconds of earlier releases, so that no request is sent on a connection that the server is closing.
KEEPALIVE_SECONDS = 4.0

_NOT_CONNECTED = (httpx2.ConnectError, httpx2.ConnectTimeout)
_API_KEY = re.compile(r"[!-~]+")


@dataclass(frozen=True)
class ServerConnection:
    """How to reach the server. The repr does not show the API key."""

    url: httpx2.URL
    headers: dict[str, str]
    timeout: httpx2.Timeout
    max_attempts: int

    @classmethod
    def create(cls, url: str, api_key: str | None, timeout: float, max_attempts: int) -> "ServerConnection":
        """Checked settings; `timeout` is in seconds, for each of connecting, sending and waiting for the answer."""
        if max_attempts < 1:
            raise InvalidInput(f"max_attempts {max_attempts} is not allowed: it must be at least 1")
        if timeout <= 0:
            raise InvalidInput(f"timeout {timeout} is not allowed: it must be a positive number of seconds")
        headers = {"user-agent": f"peltier-client/{version('peltier')}", "accept": "application/json"}
        if api_key is not None:
            headers["authorization"] = f"Bearer {check_api_key(api_key)}"
        # Waiting for a free connection of the pool does not count: the server is not the cause.
        return cls(check_url(url), headers, httpx2.Timeout(timeout, pool=None), max_attempts)

    def __repr__(self) -> str:
        return f"ServerConnection({self.url!r})"

    @property
    def tenant(self) -> str | None:
        """The tenant of the caller as far as it is known before the first answer."""
        return None if "authorization" in self.headers else OPEN_TENANT

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments for httpx2's clients."""
        limits = httpx2.Limits(keepalive_expiry=KEEPALIVE_SECONDS)
        return {"base_url": self.url, "headers": self.headers, "timeout": self.timeout, "limits": limits}

    @property
    def retrying(self) -> dict[str, Any]:
        """Keyword arguments for stamina's callers."""
        return {
            "attempts": self.max_attempts,
            "timeout": MAX_RETRYING_SECONDS,
            "wait_initial": 0.1,
            "wait_max": 5.0,
            "wait_jitter": 0.1,
        }

    def failure(self, error: httpx2.RequestError) -> ConnectionFailed:
        """The error to raise for a failed exchange. It does not show a password in the URL."""
        url = self.url.copy_with(username=None, password=None)
        if isinstance(error, httpx2.TimeoutException) and not isinstance(error, httpx2.ConnectTimeout):
            return TimedOut(f"{url} did not answer within {self.timeout.read:g} s")
        reason = str(error) or type(error).__name__
        if isinstance(error, _NOT_CONNECTED):
            return ConnectionFailed(f"no connection to {url}: {reason}")
        return ConnectionFailed(f"the connection to {url} broke: {reason}")

    def require_answer(self, response: httpx2.Response) -> None:
        """Raise `ConnectionFailed` if the response answers the request of another client."""
        foreign = foreign_request_id(response)
        if foreign is not None:
            url, own = self.url.copy_with(username=None, password=None), response.request.headers[REQUEST_ID_HEADER]
            raise ConnectionFailed(
                f"the connection to {url} gave the answer to another request: its {REQUEST_ID_HEADER} is {foreign}, "
                f"and that of this request is {own}"
            )


def http_request(
    http: httpx2.Client | httpx2.AsyncClient, request: Request[Any], tenant: str | None
) -> httpx2.Request:  # fmt: skip
    """`request` as `http` sends it, with an id of its own each time. `tenant` is the caller's, None while it is
    unknown."""
    built = _built(http, request, tenant)
    built.headers[REQUEST_ID_HEADER] = new_request_id(built)
    return built


def _built(http: httpx2.Client | httpx2.AsyncClient, request: Request[Any], tenant: str | None) -> httpx2.Request:
    if request.file is not None:
        name, content = request.file
        sent = content if request.on_progress is None else ReportedFile(content, request.on_progress)
        files = {"file": (name, sent, "application/octet-stream")}
        if request.report is not None:
            files["report"] = (*request.report, "application/json")
        return http.build_request(request.method, request.path, data=dict(request.form), files=files)
    headers = dict(request.headers) | ({"content-type": "application/json"} if request.json is not None else {})
    session = session_id(request.task, tenant)
    if session is not None:
        headers[SESSION_HEADER] = session
    return http.build_request(request.method, request.path, params=request.query, content=request.json, headers=headers)


def is_worth_retrying(request: Request[Any], error: Exception) -> bool | float:
    """Whether to retry `request` after `error`, for stamina: False, True, or the seconds to wait. Logs retries at
    INFO."""
    if isinstance(error, QuotaExceeded | Unavailable):
        worth = _pause(error)
    else:
        # Without a connection nothing was sent. If a connection breaks later, the server may have acted on the request.
        worth = is_unconnected(error) or (IDEMPOTENCY_HEADER in request.headers and _is_broken(error))
    if worth is not False:
        logger.info("retrying after: %s", error)
    return worth


def is_unconnected(error: Exception) -> bool:
    """Whether no connection could be made, so that nothing was sent."""
    return isinstance(error.__cause__, _NOT_CONNECTED)


def _is_broken(error: Exception) -> bool:
    """Whether the connection ended before the answer; not if the caller's time is over."""
    return isinstance(error, ConnectionFailed) and not isinstance(error, TimedOut)


def _pause(error: PeltierError) -> bool | float:
    if error.retry_after is None:
        return True
    return error.retry_after if error.retry_after <= MAX_RETRY_AFTER_SECONDS else False


def check_url(url: str) -> httpx2.URL:
    """`url` parsed, or `InvalidInput` if it cannot be a server's."""
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise InvalidInput(f"the server URL cannot be read: {error}") from error
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise InvalidInput(f"url {str(parsed)!r} is not allowed: it must look like http://host:port or https://host")
    return parsed


def check_api_key(api_key: str) -> str:
    """`api_key` if it can be sent, else `InvalidInput` with a message that does not show it."""
    if _API_KEY.fullmatch(api_key):
        return api_key
    raise InvalidInput("the API key is not allowed: it must be printable ASCII without spaces, and not empty")
