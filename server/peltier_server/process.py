"""The process around the app: one socket, and an end without losses."""

import gc
import math
import signal
import socket
import sys
import time
from types import FrameType

import uvicorn
from fastapi import FastAPI
from peltier_backbone.heap import keep_freed_memory

from peltier_server.connection import connection_class
from peltier_server.lifecycle import Lifecycle
from peltier_server.settings import Settings, SettingsError

_BACKLOG = 2048
# Adapters come after the start and stay. With Python's own thresholds (700, 10, 10) sixty requests that come and go
# lead to a full collection every ten seconds, and with 10,000 adapters each stops the whole server for 400 ms.
_GC_THRESHOLDS = (10_000, 10, 100)
# How long a server that has failed waits for requests that may still be answered.
_FAILED_SECONDS = 5


class DrainingServer(uvicorn.Server):
    """uvicorn, but a signal first drains: what has arrived is answered while newcomers read 503, then it exits with 0.

    Before that, at SIGTERM, it goes on as a lame duck: not ready, so that balancers look elsewhere, and yet serving
    whoever still comes. An interrupt from a terminal skips this, for nobody balances there. A second signal ends it
    now. uvicorn alone would close its socket at once and end by raising the signal again.
    """

    def __init__(self, config: uvicorn.Config, lifecycle: Lifecycle, settings: Settings, url: str) -> None:
        super().__init__(config)
        self._lifecycle = lifecycle
        self._settings = settings
        self._url = url
        self._announced = False
        self._drain_at = math.inf
        self._deadline: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begins to leave."""
        if self._lifecycle.leaving:
            self.should_exit = self.force_exit = True
        stays = sig == signal.SIGTERM and self._lifecycle.ready
        self._drain_at = time.monotonic() + (self._settings.lame_duck_seconds if stays else 0)
        self._lifecycle.leave()

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: announces that the server is ready, or ends it once drained."""
        lifecycle = self._lifecycle
        if lifecycle.ready and not self._announced:
            self._announce()
        if lifecycle.failure is not None:
            self.config.timeout_graceful_shutdown = _FAILED_SECONDS
            self.should_exit = True
        if time.monotonic() >= self._drain_at:
            lifecycle.drain()
            self._end_when_drained()
        return await super().on_tick(counter)

    def _announce(self) -> None:
        self._announced = True
        # What has been loaded stays: without this every full collection walks a million objects of torch and the model,
        # which costs a request as much as all of its HTTP.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)
        print(f"Peltier is ready on {self._url} (try {self._url}/docs)", file=sys.stderr, flush=True)

    def _end_when_drained(self) -> None:
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._settings.drain_seconds
        if self._lifecycle.idle or now >= self._deadline:
            # Connections that still send their last answer get the rest of the time; what runs then is cancelled.
            self.config.timeout_graceful_shutdown = max(0, int(self._deadline - now))
            self.should_exit = True


def run(app: FastAPI, settings: Settings) -> None:
    """Serves until told to stop; raises what loading failed with, or `SettingsError` if the address is taken."""
    keep_freed_memory()
    lifecycle: Lifecycle = app.state.lifecycle
    with _listen(settings.host, settings.port) as listener:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        url = f"http://{host}:{listener.getsockname()[1]}"
        config = uvicorn.Config(
            app,
            http=connection_class(settings.stall_seconds),
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=_BACKLOG,
        )
        DrainingServer(config, lifecycle, settings, url).run(sockets=[listener])
    if lifecycle.failure is not None:
        raise lifecycle.failure


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        # The standard library adds the address, which is already named.
        reason = str(error.strerror or error).partition(" (")[0]
        raise SettingsError(f"cannot listen on {host}:{port}: {reason}") from None
