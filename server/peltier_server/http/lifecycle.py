"""The state of the process, and the number of open requests that it still has to answer."""

import asyncio
from typing import TYPE_CHECKING

from peltier_client.errors import Draining, NotReady

from peltier_server import retry_hints

if TYPE_CHECKING:
    from peltier_server.service import Service


class Lifecycle:
    """The states loading, ready, leaving and draining. A server that is leaving reports that it is not ready, but
    accepts requests as before. A server that is draining finishes the requests that have arrived, and accepts no
    more.
    """

    def __init__(self) -> None:
        self.leaving = False
        self.draining = False
        self.abandoned = False
        self.failure: Exception | None = None
        self._service: Service | None = None
        self._settled = asyncio.Event()
        self.num_refused = 0  # requests that arrived after the drain began; probes do not count
        self.num_open = 0  # requests that arrived before the drain and have not been answered yet

    @property
    def ready(self) -> bool:
        """Whether callers should send requests to this server."""
        return self._service is not None and not self.leaving

    @property
    def idle(self) -> bool:
        """Whether every request that arrived before the drain has been answered."""
        return self.num_open == 0

    def start(self, service: "Service") -> None:
        """Accepts requests from now on, and answers them with `service`."""
        self._service = service
        self._settled.set()

    def fail(self, failure: Exception) -> None:
        """Notes that loading, or the loaded service, has failed. The server will never be ready again."""
        self.failure = failure
        self._settled.set()

    def leave(self) -> None:
        """Makes the server report that it is not ready. Safe to call from a signal handler."""
        self.leaving = True

    def drain(self) -> None:
        """Refuses all requests that arrive from now on. Safe to call from a signal handler."""
        self.leaving = self.draining = True

    def abandon(self) -> None:
        """Makes the shutdown wait for nothing and close nothing. Safe to call from a signal handler."""
        self.abandoned = True

    async def settled(self) -> None:
        """Returns once loading has ended. Raises the exception that it failed with."""
        await self._settled.wait()
        if self.failure is not None:
            raise self.failure

    def require_ready(self) -> None:
        """Raises `Draining`, `NotReady` or the error of a failed check where callers should send requests to another
        replica.
        """
        if self.leaving:
            raise Draining("the server is about to stop", retry_after=retry_hints.SOON)
        service = self.service()
        service.watchdog.require_well()
        service.store_watch.require_well()
        service.warm_list.require_loaded()

    @property
    def problem(self) -> str | None:
        """The message of the error that `require_ready` raises; None if it raises none."""
        try:
            self.require_ready()
        except (Draining, NotReady) as error:
            return error.message
        return None

    def service(self, *, admitted: bool = False) -> "Service":
        """The service that answers requests. Raises `Draining` or `NotReady` where the server cannot answer. A
        server that drains still answers requests that it `admitted` before.
        """
        if self.draining and not admitted:
            self.num_refused += 1
            raise Draining("the server is stopping and accepts no new requests", retry_after=retry_hints.SOON)
        if self.failure is not None:
            raise NotReady(f"the server has failed: {self.failure}")
        if self._service is None:
            raise NotReady("the server is still loading its backbone", retry_after=retry_hints.SOON)
        return self._service

    def begin_request(self) -> bool:
        """Counts a request whose head has arrived. Returns whether that was before the drain. The drain waits for such
        a request, until `end_request`.
        """
        if self.draining:
            return False
        self.num_open += 1
        return True

    def end_request(self, *, admitted: bool) -> None:
        """Notes the end of the answer to a request, for which `begin_request` has returned `admitted`."""
        self.num_open -= admitted
