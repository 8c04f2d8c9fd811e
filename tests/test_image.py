"""The image of the Dockerfile, really built, and a container of it on a read-only root."""

import faulthandler
import json
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from benchmarks.common.ports import ReservedPort
from tests.support.container_image import ROOT, Podman, podman_in
from tests.support.dashboards import NAMES

pytestmark = pytest.mark.slow

_ADAPTERS = ROOT / "examples" / "adapters"
_START_SECONDS = 300


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    # pytest ends the process of a test that hangs. A build downloads a Debian and torch, and may take longer.
    faulthandler.cancel_dump_traceback_later()
    with podman_in(tmp_path_factory.mktemp("podman")) as built:
        built.build()
        yield built


@pytest.fixture(scope="module")
def key() -> str:
    return f"plt_{secrets.token_hex(32)}"


@pytest.fixture(scope="module")
def site(podman: Podman, key: str) -> Iterator[httpx2.Client]:
    """A client of the container `server`, which is ready."""
    with ReservedPort() as port:
        variables = {"ADMIN_KEY": key, "HOST": "127.0.0.1", "PORT": port.number}
        podman.start(
            "server",
            *(word for name, value in variables.items() for word in ("--env", f"PELTIER_{name}={value}")),
            *("--volume", f"{_ADAPTERS}:/adapters:ro"),
            arguments=("--backbone", "minilm", "--publish", "/adapters"),
        )
        bearer = {"authorization": f"Bearer {key}"}
        with httpx2.Client(base_url=f"http://127.0.0.1:{port.number}", headers=bearer, timeout=30) as client:
            _wait_until_ready(podman, client)
            yield client


def _wait_until_ready(podman: Podman, client: httpx2.Client) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        try:
            if client.get("/ready").status_code == 200:
                return
        except httpx2.TransportError:
            assert podman("inspect", "--format", "{{.State.Running}}", "server") == "true", podman("logs", "server")
        time.sleep(0.1)
    raise AssertionError(podman("logs", "server"))


def test_a_container_answers_from_a_read_only_root(podman: Podman, site: httpx2.Client) -> None:
    """With a user of its own, no capability and nothing to write but its volume and /tmp, it serves the examples."""
    answer = site.post("/v1/tasks/banking77/predict", json={"inputs": "I am still waiting on my card?"})
    assert answer.json()["predictions"][0]["label"] == "card_arrival"
    status = Path(f"/proc/{podman('inspect', '--format', '{{.State.Pid}}', 'server')}/status").read_text()
    fields = dict(line.split(":\t") for line in status.splitlines() if ":\t" in line)
    assert fields["Uid"].split() == ["10001"] * 4
    assert int(fields["CapEff"], 16) == 0
    assert "Read-only file system" in podman.run("exec", "server", "touch", "/opt/peltier/x").stderr


def test_the_health_check_passes(podman: Podman, site: httpx2.Client) -> None:
    """The command of HEALTHCHECK runs in the container and finds it alive."""
    assert podman("healthcheck", "run", "server") == ""


def test_the_image_lists_its_packages(podman: Podman, site: httpx2.Client) -> None:
    """Every Python package of the image is in its bill of materials, with its version."""
    bill = json.loads(podman("exec", "server", "cat", "/opt/peltier/sbom.cdx.json"))
    listed = {(part["name"].lower().replace("_", "-"), part["version"]) for part in bill["components"]}
    installed = json.loads(podman("exec", "server", "python", "-m", "pip", "list", "--format", "json"))
    assert {(part["name"].lower().replace("_", "-"), part["version"]) for part in installed} - listed == set()
    assert "peltier" in {name for name, _ in listed}


def test_the_server_is_stopped_without_a_kill(podman: Podman, site: httpx2.Client) -> None:
    """A container that is told to stop drains and ends with 0; what it has published is in its volume."""
    podman("stop", "--time", "60", "server")
    assert podman("inspect", "--format", "{{.State.ExitCode}}", "server") == "0"
    assert "drain ended" in podman.run("logs", "server").stderr
    podman("start", "server")
    _wait_until_ready(podman, site)
    assert {adapter["name"] for adapter in site.get("/v1/adapters").json()["adapters"]} >= {"banking77"}


def test_a_container_without_a_key_does_not_start(podman: Podman) -> None:
    """It would listen on every interface, open to everybody; it says in one sentence what is missing instead."""
    podman.start("keyless", arguments=("--backbone", "minilm"))
    assert podman("wait", "keyless") == "1"
    *_, line = podman.run("logs", "keyless").stderr.splitlines()
    assert "set PELTIER_ADMIN_KEY" in line


def test_the_image_of_grafana_gets_the_dashboards(podman: Podman, tmp_path: Path) -> None:
    """The build of its Dockerfile writes them from the sources in the context."""
    container = podman("create", podman.build_dashboards(), "true")
    podman("cp", f"{container}:/dashboards", str(tmp_path / "dashboards"))
    assert sorted(path.name for path in (tmp_path / "dashboards").iterdir()) == [f"{name}.json" for name in NAMES]
