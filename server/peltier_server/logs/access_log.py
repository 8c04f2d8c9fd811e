"""Writes one log record for each request, if the access log is enabled."""

import logging

from starlette.types import Scope

from peltier_server.metrics.series import matched_route

logger = logging.getLogger(__name__)

# A path may be as long as the head of a request.
_MAX_PATH_LEN = 256
_MAX_METHOD_LEN = 16


def enable_access_log() -> None:
    """Enables the access log, whatever the level of the other logs is."""
    logger.setLevel(logging.INFO)


def log_access(scope: Scope, status: int, num_bytes: int, seconds: float) -> None:
    """Logs that the current request has been answered with `status` and a body of `num_bytes`, after `seconds`. The
    record has the id, tenant and adapter of the request, but nothing of its query, headers or body.
    """
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
