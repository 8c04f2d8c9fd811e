"""The application of Ray Serve, without a cluster."""

from pathlib import Path

import pytest
from peltier_server.extensions.settings import Settings
from peltier_server.settings import SettingsError

pytest.importorskip("grpc_reflection", reason="Ray Serve is not installed")

from peltier_server.extensions.ray.app import app
from peltier_server.extensions.ray.run import run


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
