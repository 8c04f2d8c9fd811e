"""One replica on Ray Serve: the app of `peltier serve`, unchanged, in a process of Ray."""

import ipaddress
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ray.util
from peltier_backbone.machine.cores import wait_passively
from peltier_backbone.machine.heap import keep_freed_memory
from ray import serve
from ray.serve._private import replica as ray_replica
from ray.serve.context import _get_global_client
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from peltier_server.extension import choose_extensions
from peltier_server.extensions.ray.autoscaling import QUEUED_TOKENS
from peltier_server.extensions.ray.settings import ClusterSettings
from peltier_server.extensions.ray.worker_tasks import WorkerTasks, as_ray_task
from peltier_server.extensions.settings import Settings
from peltier_server.extensions.trainings.worker_process import require_training

NAME = "peltier"
# With the value 1 HAProxy takes the place of Ray's own proxies.
HAPROXY = "RAY_SERVE_ENABLE_HA_PROXY"
_REPLICA, _WORKERS = "replica", "workers"
# A replica that was killed is replaced after the next check.
_CHECK_SECONDS = 2.0
_CHECK_TIMEOUT_SECONDS = 30.0
_WAIT_LOOP_SECONDS = 0.2
_MAX_STARTS = 3
# Ray averages the queue over this time. Replicas report theirs every ten seconds.
_LOOK_BACK_SECONDS = 15.0
# Every replica is a fallback of every session.
_FALLBACK_REPLICAS = 10_000


class Replica:
    """Builds the app of a server with `settings`. Ray calls the methods on the event loop of the app.

    `directory` is where relative paths of the settings begin.
    """

    def __init__(self, settings: Settings, directory: str, workers: Any = None) -> None:
        """`workers` is a handle of the `Workers`, which Ray starts because of it."""
        wait_passively()
        _listen_on_loopback()
        _change_to(directory)
        self._settings = settings

    def __serve_build_asgi_app__(self) -> Any:
        from peltier_server.app import create_app
        from peltier_server.http.process import SWITCH_SECONDS
        from peltier_server.logs.logs import configure_logging

        settings = self._settings
        configure_logging(settings.logs, settings.auth)
        keep_freed_memory()
        sys.setswitchinterval(SWITCH_SECONDS)
        # A server without keys refuses any address but loopback, so it must know where the proxies listen.
        network = settings.network.model_copy(update={"host": http_options().host})
        app = create_app(settings.model_copy(update={"network": network}), self._pages)
        if os.environ.get(HAPROXY) != "1":
            app.add_middleware(_WithoutRequestId)
        self._state: Any = app.state
        return app

    async def check_health(self) -> None:
        """Returns once the app has loaded. Raises the reason if the app has failed, and then Ray starts another
        replica."""
        await self._state.lifecycle.settled()

    def record_autoscaling_stats(self) -> dict[str, float]:
        """The tokens of the rows and texts that wait."""
        lifecycle = self._state.lifecycle
        return {QUEUED_TOKENS: lifecycle.service().batcher.queued_tokens if lifecycle.ready else 0}

    def metrics_page(self) -> tuple[str, bytes]:
        """The id of this replica, and its page of metrics as text."""
        page, _ = self._state.metrics.exposition("text/plain")
        return _replica_id(), page

    async def _pages(self) -> dict[str, bytes]:
        """The page of every replica, by the replica's id."""
        context = serve.get_replica_context()
        handle = serve.get_deployment_handle(context.deployment, context.app_name)
        return dict(await handle.broadcast("metrics_page").results_async())


class Workers:
    """Starts the tasks of Ray that train. Ray replaces it on another node if its own is lost; its tasks end with it."""

    async def __init__(self, settings: Settings, directory: str) -> None:  # type: ignore[misc]  # Ray awaits it
        _listen_on_loopback()
        _change_to(directory)
        self._tasks = WorkerTasks(settings, as_ray_task(settings, directory))
        self._tasks.start()

    async def __del__(self) -> None:
        await self._tasks.close()


def _change_to(directory: str) -> None:
    if Path(directory).is_dir():
        os.chdir(directory)


class _WithoutRequestId:
    """Leaves `x-request-id` out of answers. Ray's proxy gives every request an id, and adds the header itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_rest(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [(name, value) for name, value in message["headers"] if name != b"x-request-id"]
                message = {**message, "headers": kept}
            await send(message)

        await self._app(scope, receive, send_rest)


def _replica_id() -> str:
    own: str = serve.get_replica_context().replica_id.unique_id
    return own


def http_options() -> Any:
    """The `host` and the `port` on which Ray's proxies listen."""
    client: Any = _get_global_client()
    return client.http_config


def _listen_on_loopback() -> None:
    """Keeps Ray's server for calls between replicas on loopback where Ray itself is. It unpickles what it receives, and
    would listen on every interface."""
    own: Any = ray_replica
    address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    if ipaddress.ip_address(address).is_loopback:
        own.add_port_to_grpc_server = partial(_add_port_on, address, own.add_port_to_grpc_server)


def _add_port_on(address: str, add_port: Callable[[Any, str], int], server: Any, _: str) -> int:
    return add_port(server, f"{address}:0")


def deploy(settings: Settings) -> Any:
    """The application of Ray Serve for `settings`. Each replica takes `threads` cores, and on CUDA one GPU. Raises
    `SettingsError` for what each replica would refuse."""
    from peltier_server.app import EXTENSIONS

    choose_extensions(EXTENSIONS, settings)
    compute, directory = settings.compute, os.getcwd()
    num_gpus = int(compute.device == "cuda")
    arguments: list[Any] = [_of_replica(settings), directory]
    if settings.training.worker:
        require_training()
        workers: Any = serve.deployment(Workers, name=_WORKERS, num_replicas=1, ray_actor_options={"num_cpus": 0})
        arguments.append(workers.bind(settings, directory))
    deployment: Any = serve.deployment(
        serve.ingress()(Replica),
        name=_REPLICA,
        ray_actor_options={"num_cpus": compute.threads, "num_gpus": num_gpus},
        autoscaling_config=_scaling(settings.cluster),
        request_router_config={
            "request_router_class": "peltier_server.extensions.ray.router:BoundedLoadRouter",
            "request_router_kwargs": {"num_fallback_replicas": _FALLBACK_REPLICAS},
        },
        max_ongoing_requests=settings.limits.max_connections,
        max_queued_requests=settings.limits.max_connections,
        graceful_shutdown_timeout_s=settings.drain.drain_seconds,
        graceful_shutdown_wait_loop_s=_WAIT_LOOP_SECONDS,
        health_check_period_s=_CHECK_SECONDS,
        health_check_timeout_s=_CHECK_TIMEOUT_SECONDS,
        max_constructor_retry_count=_MAX_STARTS,
        logging_config={"enable_access_log": False},
    )
    return deployment.bind(*arguments)


def _of_replica(settings: Settings) -> Settings:
    """The settings of a replica. It has no worker, and no port of its own for endpoint pickers."""
    training = settings.training.model_copy(update={"worker": False})
    routing = settings.routing.model_copy(update={"routing_port": None})
    return settings.model_copy(update={"training": training, "routing": routing})


def _scaling(cluster: ClusterSettings) -> dict[str, Any]:
    return {
        "min_replicas": cluster.min_replicas,
        "max_replicas": cluster.max_replicas,
        "upscale_delay_s": cluster.upscale_seconds,
        "downscale_delay_s": cluster.downscale_seconds,
        "look_back_period_s": _LOOK_BACK_SECONDS,
        "policy": {
            "policy_function": "peltier_server.extensions.ray.autoscaling:QueuedTokensPolicy",
            "policy_kwargs": {"target": cluster.target_queued_tokens},
        },
    }
