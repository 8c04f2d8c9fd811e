"""What both clients share below the API: how to connect, what to send, when to try again."""

import logging
import re
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import httpx2

from peltier_client.errors import ConnectionFailed, InvalidInput, PeltierError, QuotaExceeded, TimedOut, Unavailable
from peltier_client.exchange.request import Request

logger = logging.getLogger(__name__)
# stamina logs each retry as a warning, which Python writes to stderr where a program has configured no logging.
logging.getLogger("stamina").addHandler(logging.NullHandler())

DEFAULT_URL = "http://127.0.0.1:8000"
DEFAULT_TIMEOUT_SECONDS = 30.0
DEFAULT_ATTEMPTS = 5
# A server that asks for a longer pause gets its error raised at once, with the pause in `retry_after`.
MAX_RETRY_AFTER_SECONDS = 30.0
MAX_RETRYING_SECONDS = 60.0
# Below uvicorn's five seconds: a connection that the server is just closing is never picked up again.
KEEPALIVE_SECONDS = 4.0

_NOT_CONNECTED = (httpx2.ConnectError, httpx2.ConnectTimeout)
_API_KEY = re.compile(r"[!-~]+")


@dataclass(frozen=True)
class Connection:
    """Where the server is and how to talk to it. The API key is in no repr."""

    url: httpx2.URL
    headers: dict[str, str]
    timeout: httpx2.Timeout
    max_attempts: int

    @classmethod
    def create(cls, url: str, api_key: str | None, timeout: float, max_attempts: int) -> "Connection":
        """Checked settings; `timeout` in seconds for each of connecting, sending and waiting for the answer."""
        if max_attempts < 1:
            raise InvalidInput(f"max_attempts {max_attempts} is not allowed: at least one attempt is made")
        if timeout <= 0:
            raise InvalidInput(f"timeout {timeout} is not allowed: it is a positive number of seconds")
        headers = {"user-agent": f"peltier-client/{version('peltier')}", "accept": "application/json"}
        if api_key is not None:
            headers["authorization"] = f"Bearer {check_api_key(api_key)}"
        # Waiting for a free connection is this program's own queue, not the server's slowness.
        return cls(check_url(url), headers, httpx2.Timeout(timeout, pool=None), max_attempts)

    def __repr__(self) -> str:
        return f"Connection({self.url!r})"

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
        """What a failed exchange is to the caller; the URL's password, if any, is not shown."""
        url = self.url.copy_with(username=None, password=None)
        if isinstance(error, httpx2.TimeoutException) and not isinstance(error, httpx2.ConnectTimeout):
            return TimedOut(f"{url} did not answer within {self.timeout.read:g} s")
        reason = str(error) or type(error).__name__
        if isinstance(error, _NOT_CONNECTED):
            return ConnectionFailed(f"no connection to {url}: {reason}")
        return ConnectionFailed(f"the connection to {url} broke: {reason}")


def http_request(http: httpx2.Client | httpx2.AsyncClient, request: Request[Any]) -> httpx2.Request:
    """The request in httpx2's form."""
    if request.file is not None:
        files = {"file": (*request.file, "application/octet-stream")}
        return http.build_request(request.method, request.path, data=dict(request.form), files=files)
    headers = {"content-type": "application/json"} if request.json is not None else None
    return http.build_request(request.method, request.path, params=request.query, content=request.json, headers=headers)


def is_worth_retrying(error: Exception) -> bool | float:
    """Whether `error` may go away by itself: False, True, or True after so many seconds, as stamina's hooks say it.

    Logs at INFO what is worth another attempt.
    """
    # Nothing was sent where there is no connection; one that broke later may have done its work.
    worth = _pause(error) if isinstance(error, QuotaExceeded | Unavailable) else _is_unconnected(error)
    if worth is not False:
        logger.info("worth another attempt: %s", error)
    return worth


def _is_unconnected(error: Exception) -> bool:
    return isinstance(error.__cause__, _NOT_CONNECTED)


def _pause(error: PeltierError) -> bool | float:
    if error.retry_after is None:
        return True
    return error.retry_after if error.retry_after <= MAX_RETRY_AFTER_SECONDS else False


def check_url(url: str) -> httpx2.URL:
    """`url` parsed, or `InvalidInput` where no server can be."""
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise InvalidInput(f"the server URL cannot be read: {error}") from error
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise InvalidInput(f"url {str(parsed)!r} is not allowed: it must look like http://host:port or https://host")
    return parsed


def check_api_key(api_key: str) -> str:
    """`api_key` if it can be sent, else `InvalidInput`, which does not show it."""
    if _API_KEY.fullmatch(api_key):
        return api_key
    raise InvalidInput("the API key is not allowed: it must be printable ASCII without spaces, and not empty")
