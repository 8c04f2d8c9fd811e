import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from peltier_server.auth.caller import MONITOR
from peltier_server.settings import Settings

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent


@pytest.mark.parametrize(
    "command",
    [
        ("hadolint", "Dockerfile"),
        ("check-jsonschema", "--builtin-schema", "vendor.compose-spec", "docker-compose.yml"),
    ],
    ids=["dockerfile", "compose"],
)
def test_linters_find_nothing(command: tuple[str, ...]) -> None:
    """The Dockerfile and the compose file are free of lint."""
    result = subprocess.run([BIN / command[0], *command[1:]], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_copied_path_is_in_the_build_context() -> None:
    """What the Dockerfile copies exists, and .dockerignore, which names all that is sent, names exactly that."""
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
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
    (scrape,) = yaml.safe_load((ROOT / "deploy" / "prometheus.yml").read_text())["scrape_configs"]
    (target,) = scrape["static_configs"][0]["targets"]
    service, port = target.split(":")
    assert services[service]["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert f"PELTIER_PORT={port}" in (ROOT / "Dockerfile").read_text()
    assert scrape["authorization"]["credentials_file"] == f"/run/secrets/{services['prometheus']['secrets'][0]}"


@pytest.mark.parametrize("name", ["PELTIER_ADMIN_KEY", "PELTIER_METRICS_KEY"])
def test_the_stack_does_not_start_without_its_keys(name: str) -> None:
    """Compose itself refuses an absent key, with a sentence; the server has a setting of that name."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    assert services["server"]["environment"][name].startswith(f"${{{name}:?set ")
    assert name.removeprefix("PELTIER_").lower() in Settings.model_fields


def test_prometheus_holds_no_key_to_the_server() -> None:
    """The one that it is given opens /metrics and nothing else."""
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    variables = {compose["secrets"][secret]["environment"] for secret in compose["services"]["prometheus"]["secrets"]}
    assert variables == {"PELTIER_METRICS_KEY"}
    assert "environment" not in compose["services"]["prometheus"]
    assert MONITOR.scopes == {"metrics"}
