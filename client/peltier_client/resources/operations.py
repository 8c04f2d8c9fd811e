"""Requests about the server itself: its configuration, health and readiness."""

import httpx2

from peltier_client.errors import Unavailable
from peltier_client.exchange.request import Request, read_body, reader
from peltier_client.protocol import HealthResponse, InfoResponse, ReadyResponse


def info() -> Request[InfoResponse]:
    """The server's release, backbone and limits."""
    return Request("GET", "/info", reader(InfoResponse))


def health() -> Request[HealthResponse]:
    """Whether the process is alive. Not retried, because the answer is about now."""
    return Request("GET", "/health", reader(HealthResponse), retried=False)


def ready() -> Request[bool]:
    """Whether the server accepts predictions. Not retried."""

    def read(response: httpx2.Response) -> bool:
        try:
            read_body(response, ReadyResponse)
        except Unavailable:
            return False
        return True

    return Request("GET", "/ready", read, retried=False)
