"""Where the process is in its life, and which accepted requests still run."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from peltier_client.errors import Draining, NotReady

from peltier_server.service import Service

_RETRY_AFTER_SECONDS = 1.0


class Lifecycle:
    """Loading, ready, draining. Only a ready server accepts; what it has accepted it finishes."""

    def __init__(self) -> None:
        self.draining = False
        self.failure: Exception | None = None
        self._service: Service | None = None
        self._settled = asyncio.Event()
        self._num_accepted = 0

    @property
    def ready(self) -> bool:
        """Requests are accepted."""
        return self._service is not None and not self.draining

    @property
    def idle(self) -> bool:
        """Nothing accepted is still running."""
        return self._num_accepted == 0

    def start(self, service: Service) -> None:
        """From now on requests are accepted."""
        self._service = service
        self._settled.set()

    def fail(self, failure: Exception) -> None:
        """Loading has failed, or what was loaded: the server will never be ready again."""
        self.failure = failure
        self._settled.set()

    def drain(self) -> None:
        """From now on nothing new is accepted. Safe to call from a signal handler."""
        self.draining = True

    async def settled(self) -> None:
        """Returns once loading has ended; raises what it failed with."""
        await self._settled.wait()
        if self.failure is not None:
            raise self.failure

    def service(self) -> Service:
        """The service if the server is ready, else `Draining` or `NotReady`."""
        if self.draining:
            raise Draining("the server is stopping and takes nothing new", retry_after=_RETRY_AFTER_SECONDS)
        if self.failure is not None:
            raise NotReady(f"the server is of no use: {self.failure}")
        if self._service is None:
            raise NotReady("the server is still loading its backbone", retry_after=_RETRY_AFTER_SECONDS)
        return self._service

    @contextmanager
    def accept(self) -> Iterator[Service]:
        """The service for one request, which draining then waits for."""
        service = self.service()
        self._num_accepted += 1
        try:
            yield service
        finally:
            self._num_accepted -= 1
