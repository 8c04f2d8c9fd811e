"""A line of the log for each request, where it is wanted."""

import logging

from starlette.types import Scope

from peltier_server.metrics.labels import matched_route

logger = logging.getLogger(__name__)

# A path may be as long as a request's head.
_MAX_PATH_LEN = 256
_MAX_METHOD_LEN = 16


def enable_access_log() -> None:
    """Has its lines written whatever the level of the log is."""
    logger.setLevel(logging.INFO)


def log_access(scope: Scope, status: int, num_bytes: int, seconds: float) -> None:
    """The request has been answered with `status` and a body of so many bytes. Nothing of its query, headers or body is
    written; its id, tenant and adapter are those of the request that is being answered."""
    method, path = _cut(scope["method"], _MAX_METHOD_LEN), _cut(scope["path"], _MAX_PATH_LEN)
    fields = {
        "method": method,
        "route": matched_route(scope).path,
        "path": path,
        "status": status,
        "ms": round(1000 * seconds, 3),
        "bytes": num_bytes,
    }
    logger.info("request", extra={"fields": fields})


def _cut(text: str, max_len: int) -> str:
    return text if len(text) <= max_len else f"{text[:max_len]}…"
