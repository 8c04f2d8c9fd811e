"""The process around the app: it opens the socket, serves, and stops without losing requests."""

import gc
import logging
import math
import os
import resource
import signal
import socket
import sys
import time
from asyncio import Protocol
from importlib.metadata import version as release_of
from types import FrameType

import uvicorn
from fastapi import FastAPI
from peltier_backbone.machine.heap import keep_freed_memory

from peltier_server.http.connection import MAX_SURPLUS, connection_class
from peltier_server.http.lifecycle import Lifecycle
from peltier_server.http.listener import Listener, listen, url_of
from peltier_server.settings import ComputeSettings, CoreSettings, DrainSettings, LimitSettings

logger = logging.getLogger(__name__)

# Open files besides connections: uploads, the store, the registry, and connections that are closed at once.
_OTHER_FILES = 512
# A connection may read a blob.
_FILES_OF_A_CONNECTION = 2
# Adapters are loaded after the start and stay in memory. With Python's own thresholds (700, 10, 10), sixty concurrent
# requests cause a full collection every ten seconds, and with 10,000 adapters each collection stops the whole server
# for 400 ms.
_GC_THRESHOLDS = (10_000, 10, 100)
# How long a server that has failed waits for requests that it may still answer.
_FAILED_SECONDS = 5
_ABANDONED = 1  # the exit status after a second signal

# The runner's thread asks for the interpreter some hundred times a batch, after each call of a kernel. While the event
# loop is busy, the thread waits for this long each time. With Python's own 5 ms that is more than a second a batch.
SWITCH_SECONDS = 0.0002


class DrainingServer(uvicorn.Server):
    """uvicorn's server, with a drain at the first signal: it answers the requests that have arrived, answers later ones
    with 503, and exits with status 0.

    After SIGTERM it first serves for `lame_duck_seconds` while it reports that it is not ready, so that load balancers
    choose other replicas. After an interrupt from a terminal it drains at once, because no load balancer is involved. A
    second signal ends the server immediately. uvicorn alone would close its socket at once and raise the signal again.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        lifecycle: Lifecycle,
        settings: DrainSettings,
        url: str,
    ) -> None:
        super().__init__(config)
        self._lifecycle = lifecycle
        self._settings = settings
        self._url = url
        self._started_at = time.monotonic()
        self._announced = False
        self._signals: list[int] = []
        self._drain_at = math.inf
        self._drain_began_at: float | None = None
        self._num_open = 0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begins to leave. `log_signals` logs this later, as the signal may have interrupted a write to the log."""
        self._signals.append(sig)
        if self._lifecycle.leaving:
            self.should_exit = self.force_exit = True
            self._lifecycle.abandon()
        stays = sig == signal.SIGTERM and self._lifecycle.ready
        self._drain_at = time.monotonic() + (self._settings.lame_duck_seconds if stays else 0)
        self._lifecycle.leave()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to accept connections through a `Listener` for each socket."""
        await super().startup(sockets=[])
        self.servers = [Listener(one, self._create_protocol) for one in sockets or []]  # type: ignore[misc]

    async def on_tick(self, counter: int) -> bool:
        """Runs ten times a second: logs once that the server is ready, and ends the server once it is drained or has
        failed.
        """
        lifecycle = self._lifecycle
        self.log_signals()
        if lifecycle.ready and not self._announced:
            self._announce()
        if lifecycle.failure is not None:
            self.config.timeout_graceful_shutdown = _FAILED_SECONDS
            self.should_exit = True
        if time.monotonic() >= self._drain_at and not self.should_exit:
            self._end_when_drained()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shuts the app down, also after a second signal. In that case uvicorn would leave the app to be cancelled
        at the end of the loop, and log this as a failure of the app.
        """
        await super().shutdown(sockets)
        if self.force_exit:
            await self.lifespan.shutdown()

    def _create_protocol(self) -> Protocol:
        return self.config.http_protocol_class(
            config=self.config,  # type: ignore[call-arg]
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )

    def _announce(self) -> None:
        self._announced = True
        # The loaded objects stay. Without the freeze, every full collection walks a million objects of torch and the
        # model, which costs a request as much as all of its HTTP.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)
        seconds = round(time.monotonic() - self._started_at, 1)
        logger.info(
            "Peltier is ready on %s (try %s/docs)", self._url, self._url, extra={"fields": {"seconds": seconds}}
        )

    def log_signals(self) -> None:
        """Logs the signals that have arrived since the last call."""
        while self._signals:
            name = signal.Signals(self._signals.pop(0)).name
            logger.info("signal received", extra={"fields": {"signal": name}})

    def _end_when_drained(self) -> None:
        lifecycle, now, seconds = self._lifecycle, time.monotonic(), self._settings.drain_seconds
        if self._drain_began_at is None:
            lifecycle.drain()
            self._drain_began_at, self._num_open = now, lifecycle.num_open
            logger.info("drain begun", extra={"fields": {"open": self._num_open, "seconds": seconds}})
        seconds_left = self._drain_began_at + seconds - now
        if lifecycle.idle or seconds_left <= 0:
            self._log_drain(now - self._drain_began_at)
            # Connections that still send their last answer get the remaining time. The server then cancels the requests
            # that still run.
            self.config.timeout_graceful_shutdown = max(0, int(seconds_left))
            self.should_exit = True

    def _log_drain(self, seconds: float) -> None:
        """Logs how many requests were answered, how many were cut off, and how many were refused. The last two were
        answered 503.
        """
        cut_off = self._lifecycle.num_open
        fields = {
            "answered": self._num_open - cut_off,
            "cut_off": cut_off,
            "refused": self._lifecycle.num_refused,
            "seconds": round(seconds, 3),
        }
        logger.log(logging.WARNING if cut_off else logging.INFO, "drain ended", extra={"fields": fields})


def run(app: FastAPI, settings: CoreSettings) -> None:
    """Serves until a signal arrives. Raises the exception that loading failed with, or `SettingsError` if the
    address is in use. A second signal ends the process with status 1.
    """
    keep_freed_memory()
    sys.setswitchinterval(SWITCH_SECONDS)
    lifecycle: Lifecycle = app.state.lifecycle
    with listen(settings.network.host, settings.network.port) as listener:
        url = url_of(settings.network.host, listener)
        _log_start(settings.compute, url)
        limits = _fit_files(settings, app.state.num_files)
        server = DrainingServer(create_config(app, limits), lifecycle, settings.drain, url)
        server.run(sockets=[listener])
        server.log_signals()
    if server.force_exit:
        logger.warning("a second signal has ended the server; what it still computed is lost")
        logging.shutdown()
        os._exit(_ABANDONED)  # Python cannot exit normally while threads compute: it would abort
    if lifecycle.failure is not None:
        # With the text format, the last line of the command already gives the same message.
        if settings.logs.log_format == "json":
            logger.critical("the server failed: %s", lifecycle.failure)
        raise lifecycle.failure
    logger.info("shutdown complete")


def create_config(app: FastAPI, limits: LimitSettings) -> uvicorn.Config:
    """uvicorn's configuration. The caller has the socket."""
    return uvicorn.Config(
        app,
        http=connection_class(limits.stall_seconds, limits.max_connections),
        timeout_keep_alive=limits.keep_alive_seconds,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
    )


def _fit_files(settings: CoreSettings, num_others: int) -> LimitSettings:
    """The limits of the server, with fewer connections if the limit of open files has no room for `max_connections`
    beside all else, also `num_others` of extensions. Without a free file descriptor no listener could accept, and
    nothing could read from the store.
    """
    limits = settings.limits
    others = _OTHER_FILES + MAX_SURPLUS + num_others
    allowed = _allow_files(limits.max_connections * _FILES_OF_A_CONNECTION + others)
    # A quarter is better than none where even the others do not fit.
    fitting = max(allowed - others, allowed // 4) // _FILES_OF_A_CONNECTION
    if fitting >= limits.max_connections:
        return limits
    logger.warning(
        "%d files may be open, so the server accepts %d connections and not max_connections, %d: raise the limit "
        "(ulimit -n), or lower the setting",
        allowed,
        fitting,
        limits.max_connections,
    )
    return limits.model_copy(update={"max_connections": fitting})


def _allow_files(count: int) -> int:
    """Raises the limit of open files to `count`, or as far as the process may. Returns how many it may open, at most
    `count`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if resource.RLIM_INFINITY != soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return allowed


def _log_start(compute: ComputeSettings, url: str) -> None:
    fields = {
        "release": release_of("peltier"),
        "pid": os.getpid(),
        "url": url,
        "backbone": compute.backbone,
        "device": compute.device,
        "dtype": compute.dtype,
        "threads": compute.threads,
    }
    logger.info("Peltier starts", extra={"fields": fields})
