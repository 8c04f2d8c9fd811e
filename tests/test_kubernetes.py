"""The chart as Helm itself renders it, and the manifests of deploy/kubernetes, against the schemas of Kubernetes.

Helm comes as a library in the package helm-python-sdk, the schemas in kubernetes-validate. The definitions of custom
resources are in no package: tests/support/custom_resources.py has those of the fields in use, and
`deploy/kubernetes/validate.py` checks manifests against the projects' own files.
"""

import copy
import functools
import json
import operator
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from peltier_server.extensions.picker.server import PATH
from peltier_server.extensions.settings import SETTINGS, Settings, load_settings
from peltier_server.http.request_middleware import is_open
from peltier_server.metrics.metrics import Metrics
from peltier_server.settings_group import is_secret
from peltier_store.commands import app

from deploy.kubernetes.validate import faults, read_definitions
from tests.support.custom_resources import SCHEMAS, pieces_of
from tests.support.endpoint_picker import VLLM

helm_python: Any = pytest.importorskip("helm_python", reason="Helm's library has no build for this machine")

ROOT = Path(__file__).parents[1]
CHART = ROOT / "deploy/helm/peltier"
SAMPLES = ROOT / "deploy/kubernetes"
# The oldest version that the chart names, and the newest that has schemas here.
VERSIONS = ("1.27", "1.37")
EVERYWHERE = "0.0.0.0"  # noqa: S104 - inside the pod
# What the chart itself sets.
OWN = {
    *("host", "port", "insecure", "admin_key", "metrics_key", "secret", "store", "registry", "rate_store", "publish"),
    *("routing_host", "routing_port", "grpc_port", "grpc_certificate", "grpc_private_key"),
    # A worker would take the cores of its server, and the chart replaces Ray Serve.
    *(
        "worker",
        "ray",
        "min_replicas",
        "max_replicas",
        "max_workers",
        "target_queued_tokens",
        "upscale_seconds",
        "downscale_seconds",
    ),
}
ONE = {"auth": {"existingSecret": "keys"}}
SEVERAL = {
    **ONE,
    "replicas": 3,
    "registry": {"existingSecret": "registry"},
    "rateStore": {"existingSecret": "rates"},
    "store": {"url": "s3://bucket/peltier", "existingSecret": "bucket"},
}
EVERYTHING = {
    **SEVERAL,
    "imagePullSecrets": [{"name": "pull"}],
    "autoscaling": {"enabled": True},
    "worker": {"enabled": True, "replicas": 2},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "routing": {"enabled": True},
    "grpc": {"enabled": True, "tlsSecret": "grpc-certificate"},
    "networkPolicy": {
        "from": [{"namespaceSelector": {"matchLabels": {"name": "apps"}}}],
        "pickers": [{"podSelector": {"matchLabels": {"app": "peltier-picker"}}}],
        "egress": [{"ports": [{"port": 5432}]}],
    },
    "settings": {"device_bytes": 8_589_934_592, "max_shared_batch_seconds": 0.25, "access_log": True},
    "extraEnv": [{"name": "HF_HUB_OFFLINE", "value": "0"}],
    "serviceAccount": {"annotations": {"role": "bucket"}},
    "service": {"annotations": {"a": "b"}},
    "podAnnotations": {"a": "b"},
    "podLabels": {"c": "d"},
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "priorityClassName": "high",
}
RELEASES = pytest.mark.parametrize("values", [ONE, SEVERAL, EVERYTHING], ids=["one", "several", "everything"])
Manifest = Mapping[str, Any]
Values = Mapping[str, Any]


def render(values: Values) -> dict[str, Manifest]:
    """The manifests of a release by their kinds; one of each but for the Deployment of the workers, `worker`."""
    with helm_python.Chart.load(CHART) as chart:
        chart.validate_schema(dict(values))
        rendered = chart.render(dict(values), name="peltier", namespace="tests")
    found = [
        one for name, text in rendered.items() if name.endswith(".yaml") for one in yaml.safe_load_all(text) if one
    ]
    component = "app.kubernetes.io/component"
    is_worker = [one["metadata"]["labels"].get(component) == "worker" for one in found]
    by_kind = {"worker" if own else str(one["kind"]): one for one, own in zip(found, is_worker, strict=True)}
    assert len(by_kind) == len(found)
    return by_kind


def pod_of(manifest: Manifest) -> Any:
    return manifest["spec"]["template"]["spec"]


def env_of(manifest: Manifest) -> dict[str, Any]:
    """The variables of the container: its value, or the Secret and the key."""
    (container,) = pod_of(manifest)["containers"]
    sources = {one["name"]: one.get("valueFrom", {}).get("secretKeyRef") for one in container["env"]}
    return {one["name"]: sources[one["name"]] or one["value"] for one in container["env"]}


def sample(name: str) -> list[Manifest]:
    return [one for one in yaml.safe_load_all((SAMPLES / name).read_text()) if one]


def test_the_chart_installs_this_release() -> None:
    """The image of its appVersion."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    (release,) = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert chart["appVersion"] == release
    (container,) = pod_of(render(ONE)["Deployment"])["containers"]
    assert container["image"] == f"peltier:{release}"


@RELEASES
def test_helm_finds_nothing(values: Values) -> None:
    """`helm lint --strict` has neither an error nor a warning."""
    report = helm_python.lint(CHART, dict(values), strict=True)
    assert report["errors"] == []
    assert [one for one in report["messages"] if one["severity"] > 1] == []


def faults_of(manifests: Iterable[Manifest], version: str = VERSIONS[-1]) -> list[str]:
    return [fault for one in manifests for piece in pieces_of(one) for fault in faults(piece, SCHEMAS, version)]


@RELEASES
@pytest.mark.parametrize("version", VERSIONS)
def test_manifests_are_those_of_kubernetes(values: Values, version: str) -> None:
    """Every field has a name and a type that this version knows, or the Prometheus operator for its ServiceMonitor."""
    assert faults_of(render(values).values(), version) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_samples_are_those_of_kubernetes(version: str) -> None:
    """And of the projects whose resources they are."""
    assert faults_of([*sample("gateway.yaml"), *sample("kserve.yaml")], version) == []


def _fields(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of each field of a manifest below its `spec`, but for names that the user chooses."""
    for name, below in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        if isinstance(value, dict):
            yield (*path, name)
        if name not in {"matchLabels", "requests", "limits"}:
            yield from _fields(below, (*path, name))


@pytest.mark.slow
def test_a_misspelled_field_of_a_custom_resource_is_a_fault() -> None:
    """Each field of each of them, with a letter more."""
    monitor = render(EVERYTHING)["ServiceMonitor"]
    ours = [one for one in [*sample("gateway.yaml"), *sample("kserve.yaml"), monitor] if "." in one["apiVersion"]]
    kinds = {one["kind"] for one in ours if (one["apiVersion"], one["kind"]) in SCHEMAS}
    assert kinds == {kind for _, kind in SCHEMAS}
    for one in (one for one in ours if one["kind"] in kinds):
        for *above, name in _fields(one["spec"]):
            wrong = copy.deepcopy(one)
            place = functools.reduce(operator.getitem, above, wrong["spec"])
            place[f"{name}x"] = place.pop(name)
            assert faults_of([wrong]), (one["kind"], *above, name)


def test_unknown_fields_of_custom_resources_are_named(tmp_path: Path) -> None:
    """By the schema of a definition; a wrong value too."""
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}},
    }
    versions = [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]
    spec = {"group": "tests.io", "names": {"kind": "Box"}, "versions": versions}
    (tmp_path / "box.yaml").write_text(yaml.safe_dump({"kind": "CustomResourceDefinition", "spec": spec}))
    schemas = read_definitions([tmp_path / "box.yaml"])
    head = {"apiVersion": "tests.io/v1", "kind": "Box", "metadata": {"name": "a"}}
    closed = {**schemas["tests.io/v1", "Box"]}
    closed["properties"] = {**closed["properties"], "apiVersion": {}, "kind": {}}
    schemas = {("tests.io/v1", "Box"): closed}
    assert list(faults({**head, "spec": {"size": 3}}, schemas, "1.37")) == []
    assert list(faults({**head, "spec": {"size": "a"}}, schemas, "1.37")) == [
        "Box a: spec.size: 'a' is not of type 'integer'"
    ]
    (fault,) = faults({**head, "spec": {"size": 1, "sise": 2}}, schemas, "1.37")
    assert fault.startswith("Box a: spec: Additional properties are not allowed ('sise'")


@RELEASES
def test_the_server_accepts_its_environment(values: Values, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a value in place of each secret. Large numbers have no exponent."""
    secrets = {"PELTIER_REGISTRY": "postgresql+asyncpg://a:b@c/d", "PELTIER_RATE_STORE": "redis://:a@b"}
    for name, value in env_of(render(values)["Deployment"]).items():
        secret = secrets.get(name, f"{name}-{'x' * 32}")
        monkeypatch.setenv(name, secret if isinstance(value, dict) else value)
    settings = load_settings({"device": "cpu"})
    assert (settings.network.host, settings.network.port) == (EVERYWHERE, 8000)
    assert settings.drain.lame_duck_seconds == 10
    if values is EVERYTHING:
        assert settings.memory.device_bytes == 8_589_934_592
        assert settings.queue.max_shared_batch_seconds == 0.25
        assert settings.logs.access_log
        assert settings.store.store == "s3://bucket/peltier"
        assert settings.network.grpc_port == 9000
        assert (settings.routing.routing_host, settings.routing.routing_port) == (EVERYWHERE, 8001)


def test_secrets_are_references() -> None:
    """No value of the chart holds one, and each key of a Secret is a setting that is hidden."""
    references = {
        name: value for name, value in env_of(render(EVERYTHING)["Deployment"]).items() if isinstance(value, dict)
    }
    hidden = {name for name, field in SETTINGS.items() if not field.repr or is_secret(field.annotation)}
    assert {name.removeprefix("PELTIER_").lower() for name in references} == hidden
    assert {value["key"] for value in references.values()} == references.keys()


def test_the_schema_has_every_setting() -> None:
    """Those that the chart neither sets itself nor excludes; a new setting is added there."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(schema["properties"]["settings"]["propertyNames"]["enum"]) == SETTINGS.keys() - OWN
    assert SETTINGS.keys() > OWN


def test_every_value_is_in_the_schema_and_documented() -> None:
    """The same names in both, and a comment at each value or at the group that it is in."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(_paths(values)) == set(_schema_paths(schema)) - {"global"}
    assert _undocumented((CHART / "values.yaml").read_text()) == []


def _paths(values: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for name, value in values.items():
        yield above + name
        # Groups whose names the user chooses have none in the schema.
        if isinstance(value, dict) and name not in {"settings", "requests", "limits"}:
            yield from _paths(value, f"{above}{name}.")


def _schema_paths(schema: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for name, own in schema["properties"].items():
        # Fields of a probe without a default.
        if name in {"initialDelaySeconds", "successThreshold"} or f"{above}{name}" == "probes.startup.timeoutSeconds":
            continue
        yield above + name
        if "properties" in own:
            yield from _schema_paths(own, f"{above}{name}.")


def _undocumented(text: str) -> list[str]:
    """The values without a comment: above the value, a neighbour just before it, or a group around it."""
    missing, open_groups, before, was_documented = [], list[tuple[int, bool]](), "", False
    for line in text.splitlines():
        if found := re.match(r"( *)(\w+):(.*)", line):
            depth = len(found[1])
            open_groups = [group for group in open_groups if group[0] < depth]
            is_neighbour = was_documented and re.match(rf" {{{depth}}}\w", before)
            was_documented = bool(before.strip().startswith("#") or is_neighbour or any(one for _, one in open_groups))
            if not found[3]:
                open_groups.append((depth, was_documented))
            elif not was_documented:
                missing.append(found[2])
        before = line
    return missing


@RELEASES
def test_containers_are_hardened_as_the_image_allows(values: Values) -> None:
    """Its user, a read-only root, no capabilities, no token of the cluster; the volume of the image and /tmp are
    writable."""
    image = (ROOT / "Dockerfile").read_text()
    (user,) = re.findall(r"^USER (\d+):\1$", image, re.MULTILINE)
    (volume,) = re.findall(r"^VOLUME (\S+)$", image, re.MULTILINE)
    manifests = render(values)
    for pod in (pod_of(manifests[kind]) for kind in ("Deployment", "Job", "worker") if kind in manifests):
        context = pod["securityContext"]
        assert (context["runAsNonRoot"], context["runAsUser"], context["fsGroup"]) == (True, int(user), int(user))
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    mounts = {one["mountPath"] for one in pod_of(manifests["Deployment"])["containers"][0]["volumeMounts"]}
    assert mounts - {"/etc/peltier/grpc"} == {volume, "/tmp"}  # noqa: S108 - a volume of the pod


def test_the_cluster_sets_no_settings() -> None:
    """For a Service `peltier` it would set PELTIER_PORT, unless the pod refuses variables of Services."""
    pods = [pod_of(one) for kind, one in render(SEVERAL).items() if kind in {"Deployment", "Job"}]
    (service,) = (one for one in sample("kserve.yaml") if one["kind"] == "InferenceService")
    assert [pod["enableServiceLinks"] for pod in (*pods, service["spec"]["predictor"])] == [False] * 3


def test_probes_are_routes_without_a_key() -> None:
    """Liveness is /health, so that a server that loads or drains is not restarted."""
    (runtime,) = (one for one in sample("kserve.yaml") if one["kind"] == "ServingRuntime")
    for container in (*pod_of(render(ONE)["Deployment"])["containers"], *runtime["spec"]["containers"]):
        paths = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")}
        assert paths == {"startup": "/health", "readiness": "/ready", "liveness": "/health"}
        assert all(map(is_open, paths.values()))


def test_a_drain_fits_into_the_grace_period() -> None:
    """Of the server's defaults too."""
    pod, settings = pod_of(render(ONE)["Deployment"]), Settings.model_fields["drain"].annotation
    assert pod["terminationGracePeriodSeconds"] > 10 + 30
    assert settings is not None
    defaults = [settings.model_fields[name].default for name in ("lame_duck_seconds", "drain_seconds")]
    helper = (CHART / "templates/_helpers.tpl").read_text()
    assert [float(one) for one in re.findall(r"_seconds \| default (\d+)", helper)] == defaults


def test_one_server_keeps_its_volume_and_several_share_none() -> None:
    """A SQLite database is never used by two servers; the schema of a shared registry is upgraded by a Job before."""
    one, several = render(ONE), render(SEVERAL)
    assert one["Deployment"]["spec"]["strategy"] == {"type": "Recreate"}
    assert pod_of(one["Deployment"])["volumes"][0]["persistentVolumeClaim"]["claimName"] == "peltier"
    assert not one.keys() & {"Job", "PodDisruptionBudget"}
    assert several["Deployment"]["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert "PersistentVolumeClaim" not in several
    job = several["Job"]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    program, group, command = pod_of(job)["containers"][0]["command"]
    assert (program, group) == ("peltier", "store")
    assert command in typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert env_of(job) == {name: env_of(several["Deployment"])[name] for name in ("PELTIER_STORE", "PELTIER_REGISTRY")}


def test_what_selects_pods_selects_the_servers() -> None:
    """The Service, the budget, the policy, the spread and the pool of the sample; not the migration or workers."""
    manifests = render({**EVERYTHING, "networkPolicy": {"enabled": True}})
    labels = manifests["Deployment"]["spec"]["template"]["metadata"]["labels"]
    (pool,) = (one for one in sample("gateway.yaml") if one["kind"] == "InferencePool")
    selectors = [
        manifests["Service"]["spec"]["selector"],
        manifests["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        manifests["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
        manifests["Deployment"]["spec"]["selector"]["matchLabels"],
        pool["spec"]["selector"]["matchLabels"],
        *(one["labelSelector"]["matchLabels"] for one in pod_of(manifests["Deployment"])["topologySpreadConstraints"]),
    ]
    others = [manifests[name]["spec"]["template"]["metadata"]["labels"] for name in ("Job", "worker")]
    for selector in selectors:
        assert selector.items() <= labels.items()
        assert not any(selector.items() <= other.items() for other in others)
    assert (
        manifests["ServiceMonitor"]["spec"]["selector"]["matchLabels"].items()
        <= manifests["Service"]["metadata"]["labels"].items()
    )


def test_workers_take_their_trainings_where_the_servers_leave_them() -> None:
    """From the same registry and store, for the same backbone, by options that the command has."""
    manifests = render({**EVERYTHING, "settings": {"backbone": "org/bert"}})
    (container,) = pod_of(manifests["worker"])["containers"]
    program, name = container["command"]
    (entry,) = entry_points(group="peltier.commands", name=name)
    command = typer.Typer()
    command.command()(entry.load())
    known = {option for param in typer.main.get_command(command).params for option in param.opts}
    assert (program, container["args"]) == ("peltier", ["--backbone", "org/bert"])
    assert "--backbone" in known
    servers, workers = env_of(manifests["Deployment"]), env_of(manifests["worker"])
    shared = ("PELTIER_STORE", "PELTIER_REGISTRY")
    assert [workers[name] for name in shared] == [servers[name] for name in shared]
    assert "worker" not in render(SEVERAL)
    selector = manifests["worker"]["spec"]["selector"]["matchLabels"]
    assert selector.items() <= manifests["worker"]["spec"]["template"]["metadata"]["labels"].items()


def test_autoscaling_follows_a_metric_of_the_server() -> None:
    """The tokens in the queue. The autoscaler alone sets the number of servers."""
    manifests = render(EVERYTHING)
    (metric,) = manifests["HorizontalPodAutoscaler"]["spec"]["metrics"]
    assert metric["pods"]["metric"]["name"] in Metrics().exposition("text/plain")[0].decode()
    assert "replicas" not in manifests["Deployment"]["spec"]


def test_callers_reach_grpc_if_it_is_enabled() -> None:
    """Through the Service and the policy, at a port of the server; with the certificate of a Secret if it is named."""
    for grpc, protocol in (({"enabled": True}, "kubernetes.io/h2c"), (EVERYTHING["grpc"], "https")):
        manifests = render({**ONE, "grpc": grpc})
        (container,) = pod_of(manifests["Deployment"])["containers"]
        ports = {one["name"]: one["containerPort"] for one in container["ports"]}
        service = {one["name"]: one for one in manifests["Service"]["spec"]["ports"]}["grpc"]
        assert (service["targetPort"], service["appProtocol"]) == ("grpc", protocol)
        assert str(ports["grpc"]) == env_of(manifests["Deployment"])["PELTIER_GRPC_PORT"] == str(service["port"])
        assert manifests["NetworkPolicy"]["spec"]["ingress"] == [{"ports": [{"port": "http"}, {"port": "grpc"}]}]
    env, (mount,) = env_of(manifests["Deployment"]), (one for one in container["volumeMounts"] if "grpc" in one["name"])
    files = [env["PELTIER_GRPC_CERTIFICATE"], env["PELTIER_GRPC_PRIVATE_KEY"]]
    assert files == [f"{mount['mountPath']}/{name}" for name in ("tls.crt", "tls.key")]
    (volume,) = (one for one in pod_of(manifests["Deployment"])["volumes"] if one["name"] == mount["name"])
    assert volume["secret"] == {"secretName": "grpc-certificate"}
    assert "grpc" not in json.dumps(render(ONE))


def test_only_pickers_reach_the_gauges() -> None:
    """The port has no rule without them, and is closed to all others."""
    ports = [
        [one["port"] for one in rule["ports"]]
        for rule in render({**ONE, "routing": {"enabled": True}})["NetworkPolicy"]["spec"]["ingress"]
    ]
    assert ports == [["http"]]
    rules = render(EVERYTHING)["NetworkPolicy"]["spec"]["ingress"]
    (picker,) = (rule["from"] for rule in rules if rule["ports"] == [{"port": "routing"}])
    (deployment,) = (one for one in sample("gateway.yaml") if one["kind"] == "Deployment")
    assert (
        picker[0]["podSelector"]["matchLabels"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    )


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, "auth.existingSecret is empty: name a Secret with the key PELTIER_ADMIN_KEY"),
        ({**ONE, "replicas": 2}, "several servers share their state: set registry.existingSecret and store.url"),
        ({**ONE, "autoscaling": {"enabled": True}}, "several servers share their state"),
        ({**ONE, "worker": {"enabled": True}}, "workers share the state of the servers: set registry.existingSecret"),
        ({**ONE, "terminationGracePeriodSeconds": 40}, "terminationGracePeriodSeconds is 40: it must be more than"),
        ({**ONE, "serviceAccount": {"create": False}}, "serviceAccount.name is empty"),
        ({**ONE, "settings": {"max_batch": 3}}, "max_batch"),
        ({**ONE, "replica": 3}, "replica"),
        ({**ONE, "grpc": {"enabled": True, "ports": 9000}}, "ports"),
        (
            {**ONE, "grpc": {"enabled": True, "port": 8001}, "routing": {"enabled": True}},
            "grpc.port and routing.port are both 8001",
        ),
    ],
)
def test_values_that_cannot_work_are_refused(values: Values, sentence: str) -> None:
    """By a sentence before anything is installed."""
    with pytest.raises(helm_python.HelmError, match=re.escape(sentence)):
        render(values)


def test_the_values_of_the_guide_can_be_rendered() -> None:
    """Those of several servers, with those of the gateway. The metric of the rule is the autoscaler's."""
    page = (ROOT / "docs/guides/kubernetes.md").read_text()
    several, rule, gateway = map(yaml.safe_load, re.findall(r"^```yaml\n(.*?)^```", page, re.DOTALL | re.MULTILINE))
    manifests = render({**several, **gateway, "autoscaling": {"enabled": True}})
    assert len(manifests["NetworkPolicy"]["spec"]["ingress"]) == 2
    (metric,) = manifests["HorizontalPodAutoscaler"]["spec"]["metrics"]
    assert rule["rules"][0]["seriesQuery"].startswith(f"{metric['pods']['metric']['name']}{{")


def test_the_picker_reads_the_gauges_where_the_chart_serves_them() -> None:
    """The path, the port, the label of the engine and the names in the picker's configuration are the server's. Every
    plugin that it refers to is declared."""
    documents = sample("gateway.yaml")
    (config,) = (yaml.safe_load(one["data"]["config.yaml"]) for one in documents if one["kind"] == "ConfigMap")
    plugins = {one["type"]: one.get("parameters", {}) for one in config["plugins"]}
    pods = render(EVERYTHING)["Deployment"]["spec"]["template"]
    ports = {one["name"]: one["containerPort"] for one in pods["spec"]["containers"][0]["ports"]}
    assert plugins["metrics-data-source"] == {"scheme": "http", "path": PATH, "port": ports["routing"]}
    extractor = plugins["core-metrics-extractor"]
    (engine,) = extractor["engineConfigs"]
    assert engine == {"name": pods["metadata"]["labels"]["llm-d.ai/engine-type"], **VLLM}
    assert extractor["defaultEngine"] == engine["name"]
    (profile,) = config["schedulingProfiles"]
    (source,) = config["dataLayer"]["sources"]
    referring = [*profile["plugins"], source, *source["extractors"], *config["requestHandler"]["parsers"]]
    assert {one["pluginRef"] for one in referring} | {"single-profile-handler"} == plugins.keys()
    # The fallback takes every path, so parsers after it are skipped.
    assert config["requestHandler"]["parsers"][-1] == {"pluginRef": "passthrough-parser"}


def test_the_parts_of_the_gateway_refer_to_each_other() -> None:
    """The route to the pool and the Service of the chart, the pool to the picker and the server's port."""
    parts = {(one["kind"], one["metadata"]["name"]): one for one in sample("gateway.yaml")}
    service = render(ONE)["Service"]
    route, pool = parts["HTTPRoute", "peltier"]["spec"], parts["InferencePool", "peltier"]["spec"]
    assert ("Gateway", route["parentRefs"][0]["name"]) in parts
    to_pool, to_any = (rule["backendRefs"][0] for rule in route["rules"])
    assert (to_pool["kind"], to_pool["name"]) in parts
    assert to_any == {"name": service["metadata"]["name"], "port": service["spec"]["ports"][0]["port"]}
    assert pool["targetPorts"] == [{"number": 8000}]
    picker = parts["Service", pool["endpointPickerRef"]["name"]]["spec"]["ports"][0]
    assert picker["port"] == pool["endpointPickerRef"]["port"]["number"]
    (container,) = parts["Deployment", "peltier-picker"]["spec"]["template"]["spec"]["containers"]
    assert "--pool-name=peltier" in container["args"]
    assert f"--grpc-port={picker['port']}" in container["args"]


def test_kserve_asks_the_protocol_that_the_server_speaks() -> None:
    """Version 2, on the port that the container opens, with the runtime of the sample."""
    runtime, service = sample("kserve.yaml")
    model = service["spec"]["predictor"]["model"]
    assert model["runtime"] == runtime["metadata"]["name"]
    assert [model["protocolVersion"]] == runtime["spec"]["protocolVersions"] == ["v2"]
    assert model["modelFormat"]["name"] in {one["name"] for one in runtime["spec"]["supportedModelFormats"]}
    (container,) = runtime["spec"]["containers"]
    env = {one["name"]: one.get("value") for one in container["env"]}
    assert env["PELTIER_PORT"] == str(container["ports"][0]["containerPort"])
    flags = {one.removeprefix("--") for one in container["args"][::2]}
    assert {name.removeprefix("PELTIER_").lower() for name in env} | flags <= SETTINGS.keys()
    assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in runtime["spec"]["volumes"]}
