"""Requests about the server itself: its configuration, health and readiness."""

import httpx2

from peltier_client.errors import Unavailable
from peltier_client.exchange.request import Request, read_body, reader
from peltier_client.protocol import ActivityResponse, HealthResponse, InfoResponse, LiveSnapshot, ReadyResponse


def info() -> Request[InfoResponse]:
    """The server's release, backbone and limits."""
    return Request("GET", "/info", reader(InfoResponse))


def live(max_versions: int) -> Request[LiveSnapshot]:
    """What the replica did since its start and holds now. Not retried, because the answer is about now."""
    return Request("GET", "/v1/live", reader(LiveSnapshot), query={"adapters": max_versions}, retried=False)


def activity() -> Request[ActivityResponse]:
    """What the tenant's adapters answered, and which are in memory."""
    return Request("GET", "/v1/activity", reader(ActivityResponse))


def health() -> Request[HealthResponse]:
    """Whether the process is alive. Not retried, because the answer is about now."""
    return Request("GET", "/health", reader(HealthResponse), retried=False)


def ready() -> Request[bool]:
    """Whether the server accepts predictions. Not retried."""
    return Request("GET", "/ready", lambda response: _read_unreadiness(response) is None, retried=False)


def why_not_ready() -> Request[str | None]:
    """Why the server accepts no predictions; None if it does. Not retried."""
    return Request("GET", "/ready", _read_unreadiness, retried=False)


def _read_unreadiness(response: httpx2.Response) -> str | None:
    try:
        read_body(response, ReadyResponse)
    except Unavailable as error:
        return error.message
    return None
