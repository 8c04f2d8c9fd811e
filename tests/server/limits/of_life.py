"""Bounds of the server's life, and of its metrics."""

from unittest.mock import patch

from peltier_server.extensions.picker.server import RoutingMetrics
from peltier_server.http.lifecycle import Lifecycle
from peltier_server.metrics.series import TenantLabels

from tests.server.limits.probe import Met, probe
from tests.server.limits.servers import Servers
from tests.support.endpoint_picker import Endpoint


@probe("time in which a deleted version can be undeleted")
def _(servers: Servers) -> Met:
    data = servers.make_artifact(servers.backbones["bert"], "bitfit", seed=1)
    servers.bert.upload(data, name="deleted").raise_for_status()
    servers.bert.client.delete("/v1/adapters/deleted").raise_for_status()
    servers.bert.run(servers.bert.service._purge_task.purge())
    return servers.bert.client.post("/v1/adapters/deleted/versions/1/undelete")


@probe("time as a lame duck after SIGTERM")
def _(servers: Servers) -> Met:
    with patch.object(_lifecycle(servers), "leaving", True):
        assert servers.bert.predict().status_code == 200
        return servers.bert.client.get("/ready")


@probe("time to answer what has arrived")
def _(servers: Servers) -> Met:
    with patch.object(_lifecycle(servers), "draining", True):
        return servers.bert.predict()


@probe("versions with series of their own in the metrics")
def _(servers: Servers) -> Met:
    servers.bert.upload(servers.make_artifact(servers.backbones["bert"], "bitfit", seed=2)).raise_for_status()
    for version in (1, 2):
        servers.bert.version(version).predict().raise_for_status()
    assert servers.bert.metrics("peltier_adapter_requests_total", adapter="other")
    return "the version is counted as `other`"


@probe("names of adapters in a list for endpoint pickers")
def _(servers: Servers) -> Met:
    gauges = RoutingMetrics(prefix="vllm:", max_names=1)
    servers.bert.upload(servers.make_artifact(servers.backbones["bert"], "bitfit", seed=3)).raise_for_status()
    assert len(Endpoint.read(gauges.page(servers.bert.service)).active_models) == 1
    return "the most recently used ones are listed"


@probe("tenants with series of their own in the metrics", "peltier_server.metrics.series._MAX_TENANTS")
def _(_: Servers) -> Met:
    labels = TenantLabels()
    assert [labels.of(f"tenant-{number}") for number in range(101)][99:] == ["tenant-99", "_others"]
    return "the tenant is counted as `_others`"


def _lifecycle(servers: Servers) -> Lifecycle:
    lifecycle: Lifecycle = servers.bert.listening.app.state.lifecycle
    return lifecycle
