import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from peltier_server.auth.keyring import MONITOR
from peltier_server.extensions.settings import SETTINGS

from tests.support.dashboards import NAMES, write_dashboards

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
PROMETHEUS = ROOT / "deploy" / "prometheus"
PROMTOOL = shutil.which("promtool")
DOCKERFILES = [ROOT / "Dockerfile", ROOT / "deploy" / "grafana" / "Dockerfile"]


@pytest.mark.parametrize(
    "command",
    [
        ("hadolint", *DOCKERFILES),
        ("check-jsonschema", "--builtin-schema", "vendor.compose-spec", "docker-compose.yml"),
    ],
    ids=["dockerfiles", "compose"],
)
def test_linters_find_nothing(command: tuple[str, ...]) -> None:
    """The Dockerfiles and the compose file are free of lint."""
    result = subprocess.run([BIN / command[0], *command[1:]], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_copied_path_is_in_the_build_context() -> None:
    """What the Dockerfiles copy exists, and .dockerignore, which names all that is sent, names exactly that."""
    text = "".join(file.read_text() for file in DOCKERFILES)
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    copied = {path for line in copies for path in line.split()}
    ignore = (ROOT / ".dockerignore").read_text().split()
    assert {path for path in copied if not (ROOT / path).exists()} == set()
    assert "*" in ignore
    assert copied == {line.removeprefix("!") for line in ignore if line.startswith("!")}


def test_the_image_holds_every_package() -> None:
    """A package that the wheel names is a folder that the image is built from."""
    packages = re.findall(r'^    "(\w+)/peltier_\w+",$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    copied = re.findall(r"^COPY (\w+) \./", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert list(dict.fromkeys(packages)) == copied


def test_the_image_for_a_gpu_has_the_compiler_that_triton_needs() -> None:
    """Triton compiles a launcher in C at its first use. The final stage has a compiler where it has Triton, and the
    volume keeps what was compiled, for whatever user and with a read-only root."""
    final = (ROOT / "Dockerfile").read_text().rpartition("\nFROM ")[2].replace("\\\n", "")
    _, copied, after = final.partition("COPY --from=build /opt/peltier /opt/peltier")
    assert copied
    assert re.search(r"^RUN if .*show --quiet triton; then .*apt-get install .*gcc libc6-dev", after, re.MULTILINE)
    (volume,) = re.findall(r"^VOLUME (.+)$", after, re.MULTILINE)
    assert f"TRITON_CACHE_DIR={volume}/" in after


def test_prometheus_scrapes_the_server_with_its_key() -> None:
    """The scrape target is the compose service, and the credentials are the secret that compose mounts."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    (scrape,) = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    (target,) = scrape["static_configs"][0]["targets"]
    service, port = target.split(":")
    assert services[service]["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert f"PELTIER_PORT={port}" in (ROOT / "Dockerfile").read_text()
    assert scrape["authorization"]["credentials_file"] == f"/run/secrets/{services['prometheus']['secrets'][0]}"
    assert "./deploy/prometheus:/etc/prometheus:ro" in services["prometheus"]["volumes"]


@pytest.mark.skipif(PROMTOOL is None, reason="prometheus is not installed")
@pytest.mark.parametrize(
    "command",
    [("config", "--syntax-only", "prometheus.yml"), ("rules", "--lint-fatal", "alerts.yml")],
    ids=["config", "rules"],
)
def test_promtool_finds_nothing(command: tuple[str, ...]) -> None:
    """Prometheus' own checker accepts the configuration and the rules. The key that it names exists in a container."""
    assert PROMTOOL is not None
    result = subprocess.run([PROMTOOL, "check", *command], cwd=PROMETHEUS, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_alert_says_what_to_do() -> None:
    """Each has a severity, a summary and a description, and the page on operations lists it."""
    page = (ROOT / "docs" / "operations.md").read_text()
    groups = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert {rule["labels"]["severity"] for rule in rules} == {"critical", "warning", "info"}
    assert {tuple(rule["annotations"]) for rule in rules} == {("summary", "description")}
    assert [rule["alert"] for rule in rules if f"`{rule['alert']}`" not in page] == []


@pytest.fixture(scope="module")
def dashboards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the dashboards."""
    folder = tmp_path_factory.mktemp("dashboards")
    write_dashboards(folder)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_dashboards_have_grafanas_schema(dashboards: Path, name: str) -> None:
    """Grafana's types read each field and write it again, and every panel has a unit, thresholds and a description."""
    register_default_plugins()
    document = json.loads((dashboards / f"{name}.json").read_text())
    assert json.loads(json.dumps(Dashboard.from_json(document), cls=JSONEncoder)) == document
    panels = [panel for panel in document["panels"] if panel["type"] != "row"]
    defaults = [panel["fieldConfig"]["defaults"] for panel in panels]
    assert [panel["title"] for panel in panels if not panel["description"] or not panel["targets"]] == []
    assert [one for one in defaults if not one["unit"] or not one["thresholds"]["steps"]] == []
    assert len({panel["id"] for panel in document["panels"]}) == len(document["panels"])


def test_grafana_is_provisioned() -> None:
    """Compose builds an image that has the dashboards where the provisioning files, which it mounts, look for them.
    Grafana's data source is the Prometheus of the stack."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    grafana = ROOT / "deploy" / "grafana" / "provisioning"
    (provider,) = yaml.safe_load((grafana / "dashboards" / "peltier.yml").read_text())["providers"]
    (source,) = yaml.safe_load((grafana / "datasources" / "prometheus.yml").read_text())["datasources"]
    image = ROOT / services["grafana"]["build"]["context"] / services["grafana"]["build"]["dockerfile"]
    assert image.read_text().endswith(f"COPY --from=build /dashboards {provider['options']['path']}\n")
    volumes = services["grafana"]["volumes"]
    assert "./deploy/grafana/provisioning:/etc/grafana/provisioning:ro" in volumes
    port = services["prometheus"]["ports"][0].rpartition(":")[2]
    assert source["url"] == f"http://prometheus:{port}"


def test_every_service_is_hardened() -> None:
    """Loopback ports only, no capabilities, no new privileges; a read-only root where compose can."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    for service in services.values():
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert {name for name, service in services.items() if not service.get("read_only")} == {"prometheus"}
    assert services["grafana"]["environment"]["GF_SECURITY_ADMIN_PASSWORD"].startswith("${GRAFANA_PASSWORD:?set ")


@pytest.mark.parametrize("name", ["PELTIER_ADMIN_KEY", "PELTIER_METRICS_KEY"])
def test_the_stack_does_not_start_without_its_keys(name: str) -> None:
    """Compose itself refuses an absent key, with a sentence; the server has a setting of that name."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    assert services["server"]["environment"][name].startswith(f"${{{name}:?set ")
    assert name.removeprefix("PELTIER_").lower() in SETTINGS


def test_prometheus_holds_no_key_to_the_server() -> None:
    """The one that it is given opens /metrics and nothing else."""
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    variables = {compose["secrets"][secret]["environment"] for secret in compose["services"]["prometheus"]["secrets"]}
    assert variables == {"PELTIER_METRICS_KEY"}
    assert "environment" not in compose["services"]["prometheus"]
    assert MONITOR.scopes == {"metrics"}
