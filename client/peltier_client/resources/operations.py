"""Requests about the server itself: what it runs, and whether it is alive and ready."""

import httpx2

from peltier_client.errors import Unavailable
from peltier_client.exchange.request import Request, read_body, reader
from peltier_client.protocol import HealthResponse, InfoResponse, ReadyResponse


def info() -> Request[InfoResponse]:
    """What the server runs."""
    return Request("GET", "/info", reader(InfoResponse))


def health() -> Request[HealthResponse]:
    """Whether the process is alive; asked once, because who asks wants to know now."""
    return Request("GET", "/health", reader(HealthResponse), retried=False)


def ready() -> Request[bool]:
    """Whether predictions are answered; asked once."""

    def read(response: httpx2.Response) -> bool:
        try:
            read_body(response, ReadyResponse)
        except Unavailable:
            return False
        return True

    return Request("GET", "/ready", read, retried=False)
