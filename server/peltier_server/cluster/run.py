"""`peltier serve --ray`: starts Ray Serve, or joins the cluster at RAY_ADDRESS, and serves until a signal arrives."""

import logging
import os
import re
import signal
import threading
from typing import Any

import ray
from peltier_backbone.machine.cores import usable_cores
from ray import serve

from peltier_server.cluster.replica import HAPROXY, NAME, deploy, http_options
from peltier_server.settings import Settings, SettingsError

logger = logging.getLogger(__name__)

# Requests and answers pass through it only while they are on their way.
_STORE_BYTES = 100 * 2**20
# Ray gives its agents 15 s to start, which a busy machine exceeds.
_MAX_STARTS = 4

# The last line of a traceback.
_RAISED = re.compile(r"[\w.]+(?:Error|Exception): (.+)")


def run(settings: Settings) -> None:
    """Raises `SettingsError` if the cluster or a replica does not start, or if the cluster already serves on another
    address."""
    host, port = settings.network.host, settings.network.port
    if not port:
        raise SettingsError("port is 0, and Ray Serve cannot choose a port: name one")
    if settings.network.is_private and os.environ.get(HAPROXY) == "1":
        raise SettingsError(f"with {HAPROXY} Ray Serve listens on every interface, and host is {host!r}: unset it")
    stopped = threading.Event()
    _init(settings)
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopped.set())
        proxies = "HeadOnly" if settings.network.is_private else "EveryNode"
        serve.start(proxy_location=proxies, http_options={"host": host, "port": port})
        _check_address(host, port)
        try:
            serve.run(deploy(settings), name=NAME)
        except RuntimeError as error:
            raise SettingsError(f"Ray Serve started no replica: {_reason(error)}") from None
        logger.info("Peltier is ready on http://%s:%d (try http://%s:%d/docs)", host, port, host, port)
        stopped.wait()
        logger.info("stopping the replicas")
    finally:
        _end()
    logger.info("shutdown complete")


def _init(settings: Settings) -> None:
    own: dict[str, Any] = {}
    if "RAY_ADDRESS" not in os.environ:
        # Without "local", Ray would join the cluster that was last started on this machine.
        wanted = settings.cluster.max_replicas * settings.compute.threads + int(settings.training.worker)
        num_cpus = max(usable_cores(), wanted)
        own = {
            "address": "local",
            "num_cpus": num_cpus,
            "include_dashboard": False,
            "object_store_memory": _STORE_BYTES,
        }
    for attempt in range(1, _MAX_STARTS + 1):
        try:
            ray.init(**own, logging_level=logging.ERROR)
        except ConnectionError as error:
            raise SettingsError(f"Ray's cluster cannot be reached: {error}") from None
        except Exception as error:  # Ray has no class of its own for this
            ray.shutdown()
            if "timed out" not in str(error) or attempt == _MAX_STARTS:
                raise SettingsError(f"Ray did not start: {error}") from None
            logger.warning("Ray did not start in time, and is started again")
        else:
            return


def _end() -> None:
    """Stops the replicas once they have answered what they have received, and a cluster that this process started."""
    if "RAY_ADDRESS" in os.environ:
        serve.delete(NAME)
    else:
        serve.shutdown()  # type: ignore[no-untyped-call]
    ray.shutdown()


def _check_address(host: str, port: int) -> None:
    """Ray Serve keeps the address with which it was first started on a cluster."""
    found = http_options()
    if (found.host, found.port) != (host, port):
        raise SettingsError(
            f"Ray Serve on this cluster listens on {found.host}:{found.port}, and the settings say {host}:{port}: "
            "use its address, or stop it first"
        )


def _reason(error: RuntimeError) -> str:
    """The message of the error that ended a replica, or else Ray's own."""
    found = [str(error)]
    for deployment in serve.status().applications[NAME].deployments.values():
        found += [raised[1] for line in deployment.message.splitlines() if (raised := _RAISED.match(line))]
    return found[-1]
