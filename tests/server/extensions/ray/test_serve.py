"""The application of Ray Serve, its policy, its router and its proxy, without a cluster."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from peltier_server.extensions.ray.autoscaling import QueuedTokensPolicy
from peltier_server.extensions.ray.proxy import MIDDLEWARE, NotReadyWithoutRoutes
from peltier_server.extensions.settings import Settings
from peltier_server.settings import SettingsError
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

pytest.importorskip("grpc_reflection", reason="Ray Serve is not installed")

from peltier_server.extensions.ray.app import app
from peltier_server.extensions.ray.router import BoundedLoadRouter
from peltier_server.extensions.ray.run import run
from ray.serve._private.common import DeploymentID, ReplicaID
from ray.serve._private.http_util import validate_http_proxy_callback_return
from ray.serve._private.proxy import HTTPProxy
from ray.serve._private.utils import call_function_from_import_path


def test_the_application_has_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that `serve run` passes, and the environment's. A replica takes a core for each thread."""
    monkeypatch.setenv("PELTIER_MAX_REPLICAS", "3")
    deployment = app({"threads": "2", "target_queued_tokens": 500})._bound_deployment
    assert deployment.ray_actor_options == {"num_cpus": 2, "num_gpus": 0}
    scaling = deployment._deployment_config.autoscaling_config
    assert (scaling.min_replicas, scaling.max_replicas) == (1, 3)
    assert scaling.policy.policy_kwargs == {"target": 500}
    settings, directory = deployment.init_args
    assert isinstance(settings, Settings)
    assert Path(directory) == Path.cwd()


def test_workers_are_started_by_a_deployment_of_their_own() -> None:
    """It takes no core itself; the replicas start no worker."""
    deployment = app({"worker": "true", "max_workers": "3"})._bound_deployment
    settings, _, workers = deployment.init_args
    assert not settings.training.worker
    own = workers._bound_deployment
    assert (own.ray_actor_options["num_cpus"], own.num_replicas) == (0, 1)
    assert own.init_args[0].cluster.max_workers == 3


def test_a_wrong_setting_is_refused() -> None:
    """As `peltier serve` refuses it, before a replica starts."""
    with pytest.raises(SettingsError, match=r"^setting 'replicas' is unknown"):
        app({"replicas": "3"})
    with pytest.raises(SettingsError, match=r"^max_replicas is 1: it must be at least min_replicas, 2$"):
        app({"min_replicas": "2"})
    with pytest.raises(SettingsError, match=r"^without names 'consul', which is no extension"):
        app({"without": "consul"})
    with pytest.raises(SettingsError, match=r"^worker asks for the extension 'trainings', which is left out"):
        app({"without": "trainings", "worker": "true"})


def test_a_port_must_be_named() -> None:
    """Ray's proxies cannot choose one."""
    with pytest.raises(SettingsError, match=r"^port is 0, and Ray Serve cannot choose a port"):
        run(Settings.model_validate({"network": {"port": 0}}))


def test_ray_may_not_listen_on_every_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's mode that ignores the address is refused before Ray starts."""
    monkeypatch.setenv("RAY_SERVE_ENABLE_HA_PROXY", "1")
    with pytest.raises(SettingsError, match=r"^with RAY_SERVE_ENABLE_HA_PROXY Ray Serve listens on every interface"):
        run(Settings())


REPLICAS = [ReplicaID(name, DeploymentID("replica", "peltier")) for name in ("a", "b", "c")]


async def order(load: dict[str, int], session: str = "default/sst2") -> list[str]:
    """The names of the replicas in the order in which a request is tried."""
    router: Any = BoundedLoadRouter.__new__(BoundedLoadRouter)
    replicas = {one: SimpleNamespace(replica_id=one) for one in REPLICAS}
    router._replicas, router._num_virtual_nodes, router._num_fallback_replicas = replicas, 100, 10
    router._replica_queue_len_cache = {one: load.get(one.unique_id) for one in REPLICAS}
    router._deployment_id = REPLICAS[0].deployment_id
    router._rebuild_ring(frozenset(REPLICAS))
    pending: Any = SimpleNamespace(
        metadata=SimpleNamespace(session_id=session, internal_request_id="1"), routing_context=SimpleNamespace()
    )
    ranked = await router.choose_replicas([*replicas.values()], pending)
    return [one.replica_id.unique_id for (one,) in ranked]


async def test_a_session_has_one_order() -> None:
    """It depends on the session alone while no replica has more than its share."""
    first = await order({})
    assert sorted(first) == ["a", "b", "c"]
    assert await order({"a": 1, "b": 1, "c": 1}) == first
    assert len({(*await order({}, f"default/{number}"),) for number in range(40)}) > 3


async def test_a_busy_replica_comes_last() -> None:
    """A replica with more than 1.5 times the average comes after the others, which keep their order."""
    home, *others = await order({})
    assert await order({home: 5, others[0]: 4, others[1]: 4}) == [home, *others]
    assert await order({home: 9, others[0]: 3, others[1]: 3}) == [*others, home]


async def test_few_requests_stay_together() -> None:
    """A task with a few requests at a time stays on its replica, although the others have none."""
    home, *others = await order({})
    assert await order({home: 3}) == [home, *others]
    assert await order({home: 4}) == [*others, home]


@pytest.mark.parametrize(
    ("reported", "wanted"),
    [
        (None, 0),  # before the first report Ray keeps the least number
        ({}, 0),
        ({"queued_tokens": {"a": 0.0, "b": 0.0}}, 0),
        ({"queued_tokens": {"a": 50.0, "b": 150.0}}, 2),
        ({"queued_tokens": {"a": 100.0, "b": 101.0}}, 2.01),
    ],
)
def test_replicas_share_the_queued_tokens(reported, wanted):
    """As many replicas as leave the target to each; Ray rounds up and applies the bounds."""
    assert QueuedTokensPolicy(target=100)(SimpleNamespace(aggregated_metrics=reported)) == (wanted, {})


async def ask(app: ASGIApp) -> httpx2.Response:
    """The answer of an app behind the middleware."""
    transport = httpx2.ASGITransport(NotReadyWithoutRoutes(app))
    async with httpx2.AsyncClient(transport=transport, base_url="http://ray") as client:
        return await client.get("/v1/tasks/a/predict")


async def test_the_404_of_the_proxy_becomes_not_ready() -> None:
    """It is the one of the installed Ray."""

    async def without_routes(scope: Scope, receive: Receive, send: Send) -> None:
        proxy: Any = SimpleNamespace()
        request: Any = SimpleNamespace(path=scope["path"])
        async for message in HTTPProxy.not_found_response(proxy, request):
            if isinstance(message, dict):
                await send(message)

    answer = await ask(without_routes)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["error"] == {
        "code": "not_ready",
        "message": "Ray's proxy knows no replica of this server yet",
        "details": [],
    }


async def _pieces(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


@pytest.mark.parametrize(
    "answer",
    [
        PlainTextResponse("adapter 'a' does not exist", 404),
        Response(status_code=404),
        StreamingResponse(_pieces(b"not ", b"here"), 404),
        PlainTextResponse("fine"),
    ],
    ids=["text", "empty", "pieces", "success"],
)
async def test_answers_of_applications_pass(answer: Response) -> None:
    found = await ask(answer)
    expected = b"not here" if isinstance(answer, StreamingResponse) else answer.body
    assert (found.status_code, found.content) == (answer.status_code, expected)


def test_ray_finds_the_middleware() -> None:
    found: Sequence[Any] = validate_http_proxy_callback_return(call_function_from_import_path(MIDDLEWARE))
    assert [one.cls for one in found] == [NotReadyWithoutRoutes]
