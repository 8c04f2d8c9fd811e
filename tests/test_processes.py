"""docker-compose.yml without a container engine."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx2
import pytest

from benchmarks.common.ports import ReservedPort

SCRIPT = Path(__file__).parent.parent / "deploy" / "processes.py"
# Compose publishes ports from 3000 to 9090; the offset leads to free ones below those that the system gives away.
PORTS = {"server": 8000, "prometheus": 9090}
KEYS = {"PELTIER_ADMIN_KEY": "plt_admin-key-of-a-test", "PELTIER_METRICS_KEY": "plt_metrics-key-of-a-test"}
_START_SECONDS = 300

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed")


@pytest.fixture
def offset() -> Iterator[int]:
    """What leads from the published ports to reserved ones."""
    for number in range(1, 20_000):
        with ExitStack() as reserved, suppress(OSError):
            for port in PORTS.values():
                reserved.enter_context(ReservedPort(port + number))
            yield number
            return


@pytest.fixture
def stack(tmp_path: Path, offset: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, SCRIPT, "--state", tmp_path, "--offset", str(offset)]
    with (tmp_path / "output").open("w") as output:
        process = subprocess.Popen(command, env=_environment(**KEYS), stdout=output, stderr=output, text=True)
    yield process
    process.send_signal(signal.SIGINT)
    process.wait()


def _environment(**variables: str) -> dict[str, str]:
    return {**os.environ, "GRAFANA_PASSWORD": "of a test", **variables}


@pytest.mark.slow
def test_prometheus_reads_the_server_of_compose(stack: subprocess.Popen[str], tmp_path: Path, offset: int) -> None:
    """The services start from the compose file alone, with its keys and its volumes, and find each other."""
    query = f"http://127.0.0.1:{PORTS['prometheus'] + offset}/api/v1/query"
    url = f"http://127.0.0.1:{PORTS['server'] + offset}"
    deadline = time.monotonic() + _START_SECONDS
    while not (_status(f"{url}/ready") == 200 and _scraped(query) == "1"):
        assert stack.poll() is None, (tmp_path / "output").read_text()
        assert time.monotonic() < deadline, (tmp_path / "server.log").read_text()
        time.sleep(0.1)
    bearer = {"authorization": f"Bearer {KEYS['PELTIER_ADMIN_KEY']}"}
    adapters = httpx2.get(f"{url}/v1/adapters", headers=bearer, timeout=60).json()["adapters"]
    assert "banking77" in {adapter["name"] for adapter in adapters}
    assert httpx2.get(f"{url}/v1/adapters", timeout=60).status_code == 401
    assert (tmp_path / "state" / "registry.db").exists()
    stack.send_signal(signal.SIGINT)
    assert stack.wait() == 0
    assert _status(f"{url}/health") is None


def _scraped(query: str) -> str | None:
    try:
        answer = httpx2.get(query, params={"query": 'up{job="peltier"}'})
    except httpx2.TransportError:
        return None
    if answer.status_code != 200:  # it has not read its data yet
        return None
    found = answer.json()["data"]["result"]
    return str(found[0]["value"][1]) if found else None


def _status(url: str) -> int | None:
    try:
        return httpx2.get(url).status_code
    except httpx2.TransportError:
        return None


def test_an_absent_key_is_named(tmp_path: Path) -> None:
    """Nothing starts without the keys; the sentence is that of the compose file."""
    command = [sys.executable, SCRIPT, "--state", tmp_path]
    done = subprocess.run(command, env=_environment(PELTIER_ADMIN_KEY=""), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "error: set PELTIER_ADMIN_KEY to the operator's key\n")
