"""HAProxy with the configuration that is shipped, as a process on a free port."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx2

HAPROXY = shutil.which("haproxy")
_CONFIGURATION = Path(__file__).parents[2] / "deploy" / "haproxy.cfg"
_START_SECONDS = 60


@contextmanager
def balanced(urls: Sequence[str]) -> Iterator[str]:
    """The URL of a HAProxy in front of two replicas, from the moment in which it knows that a replica is ready."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    replicas = {f"PELTIER_REPLICA_{number}": httpx2.URL(url).netloc.decode() for number, url in enumerate(urls, 1)}
    environment = {**os.environ, **replicas, "PELTIER_BIND": address}
    process = subprocess.Popen([str(HAPROXY), "-f", str(_CONFIGURATION)], env=environment, stderr=subprocess.DEVNULL)
    try:
        _wait_until_ready(f"http://{address}/ready")
        yield f"http://{address}"
    finally:
        process.kill()
        process.wait()


def _wait_until_ready(url: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        try:
            if httpx2.get(url).status_code == 200:
                return
        except httpx2.HTTPError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"{url} has not become ready within {_START_SECONDS} s")
