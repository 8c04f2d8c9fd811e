"""Where the process is in its life, and which requests still run that it is to answer."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from peltier_client.errors import Draining, NotReady

from peltier_server import retry_hints
from peltier_server.service import Service


class Lifecycle:
    """Loading, ready, leaving, draining. A server that is leaving says so to whoever asks for its readiness, and takes
    requests as before; one that drains finishes those that have arrived, and takes no more."""

    def __init__(self) -> None:
        self.leaving = False
        self.draining = False
        self.abandoned = False
        self.failure: Exception | None = None
        self._service: Service | None = None
        self._settled = asyncio.Event()
        self.num_refused = 0  # requests that came too late; probes of a server that drains are none
        self._num_arrived = 0

    @property
    def ready(self) -> bool:
        """Requests are welcome."""
        return self._service is not None and not self.leaving

    @property
    def idle(self) -> bool:
        """Nothing that arrived before the drain is still to be answered."""
        return self.num_open == 0

    @property
    def num_open(self) -> int:
        """Requests that arrived before the drain and are still to be answered."""
        return self._num_arrived

    def start(self, service: Service) -> None:
        """From now on requests are accepted."""
        self._service = service
        self._settled.set()

    def fail(self, failure: Exception) -> None:
        """Loading has failed, or what was loaded: the server will never be ready again."""
        self.failure = failure
        self._settled.set()

    def leave(self) -> None:
        """From now on the server is not ready. Safe to call from a signal handler."""
        self.leaving = True

    def drain(self) -> None:
        """From now on nothing that arrives is accepted. Safe to call from a signal handler."""
        self.leaving = self.draining = True

    def abandon(self) -> None:
        """From now on nothing is waited for, and nothing closed. Safe to call from a signal handler."""
        self.abandoned = True

    async def settled(self) -> None:
        """Returns once loading has ended; raises what it failed with."""
        await self._settled.wait()
        if self.failure is not None:
            raise self.failure

    def require_ready(self) -> None:
        """Raises `Draining` or `NotReady` with the reason where requests had better go elsewhere."""
        if self.leaving:
            raise Draining("the server is about to stop", retry_after=retry_hints.SOON)
        service = self.service()
        service.watchdog.require_well()
        service.store_watch.require_well()

    def service(self, *, admitted: bool = False) -> Service:
        """What answers a request; raises `Draining` or `NotReady` where it cannot. One that drains still answers those
        that were `admitted` before."""
        if self.draining and not admitted:
            self.num_refused += 1
            raise Draining("the server is stopping and accepts no new requests", retry_after=retry_hints.SOON)
        if self.failure is not None:
            raise NotReady(f"the server has failed: {self.failure}")
        if self._service is None:
            raise NotReady("the server is still loading its backbone", retry_after=retry_hints.SOON)
        return self._service

    @contextmanager
    def arrive(self) -> Iterator[bool]:
        """One request, from its head to the end of its answer; whether it came before the drain, which then waits."""
        if self.draining:
            yield False
            return
        self._num_arrived += 1
        try:
            yield True
        finally:
            self._num_arrived -= 1
