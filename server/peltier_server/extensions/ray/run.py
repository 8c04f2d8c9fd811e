"""`peltier serve --ray`: starts Ray Serve, or joins the cluster at RAY_ADDRESS, and serves until a signal arrives."""

import logging
import os
import re
import signal
import threading

import ray
from peltier_backbone.machine.cores import usable_cores
from peltier_backbone.machine.ray_cluster import join_cluster
from ray import serve

from peltier_server.extensions.ray.proxy import CALLBACK, MIDDLEWARE
from peltier_server.extensions.ray.replica import HAPROXY, NAME, deploy, http_options
from peltier_server.extensions.settings import Settings
from peltier_server.settings import SettingsError

logger = logging.getLogger(__name__)

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
    application = deploy(settings)
    stopped = threading.Event()
    if "RAY_ADDRESS" not in os.environ:
        os.environ.setdefault(CALLBACK, MIDDLEWARE)  # the processes of the cluster inherit it
    try:
        # All replicas fit, and one worker; further workers wait for cores that are there.
        wanted = settings.cluster.max_replicas * settings.compute.threads + int(settings.training.worker)
        join_cluster(max(usable_cores(), wanted))
    except RuntimeError as error:
        raise SettingsError(str(error)) from None
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopped.set())
        proxies = "HeadOnly" if settings.network.is_private else "EveryNode"
        serve.start(proxy_location=proxies, http_options={"host": host, "port": port})
        _check_address(host, port)
        try:
            serve.run(application, name=NAME)
        except RuntimeError as error:
            raise SettingsError(f"Ray Serve started no replica: {_reason(error)}") from None
        logger.info("Peltier is ready on http://%s:%d (try http://%s:%d/docs)", host, port, host, port)
        stopped.wait()
        logger.info("stopping the replicas")
    finally:
        _end()
    logger.info("shutdown complete")


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
