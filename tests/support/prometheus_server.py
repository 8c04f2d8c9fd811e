"""A real Prometheus on loopback with the shipped configuration and rules, whose durations are short."""

import math
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import yaml

from benchmarks.common.ports import ReservedPort

SHIPPED = Path(__file__).parents[2] / "deploy" / "prometheus"
# Of every range in rules and dashboards. It holds many scrapes.
WINDOW = "10s"
_SCRAPE = "250ms"
_WAIT_SECONDS = 120

T = TypeVar("T")


def wait_for(read: Callable[[], T | None], what: Callable[[], str]) -> T:
    """The first result of `read` that is not None; fails with `what` after two minutes."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < deadline:
        found = read()
        if found is not None:
            return found
        time.sleep(0.1)
    raise AssertionError(what())


class Prometheus:
    """One process with its files in `directory`, which reads `/metrics` of servers with `key`."""

    def __init__(self, directory: Path, key: str) -> None:
        program = shutil.which("prometheus")
        assert program is not None
        self._directory = directory
        self._write_rules()
        (directory / "key").write_text(key)
        self.watch([])
        self._port = ReservedPort()
        address = f"127.0.0.1:{self._port.number}"
        flags = [f"--config.file={self.config}", f"--storage.tsdb.path={directory / 'data'}"]
        with (directory / "log").open("w") as log:
            self._process = subprocess.Popen(
                [program, *flags, f"--web.listen-address={address}"], stdout=log, stderr=log
            )
        self._client = httpx2.Client(base_url=f"http://{address}", timeout=30)
        wait_for(self._is_ready, (directory / "log").read_text)

    @property
    def config(self) -> Path:
        """The file of its configuration."""
        return self._directory / "prometheus.yml"

    def _write_rules(self) -> None:
        text = (SHIPPED / "alerts.yml").read_text()
        text = re.sub(r"\bfor: \d+[mh]", "for: 0s", re.sub(r"\[\d+[mh]\]", f"[{WINDOW}]", text))
        (self._directory / "alerts.yml").write_text(text)

    def watch(self, urls: Sequence[str]) -> None:
        """Writes the configuration with these servers as targets; `reload` applies it."""
        config = yaml.safe_load((SHIPPED / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": _SCRAPE, "evaluation_interval": _SCRAPE, "scrape_timeout": _SCRAPE}
        (job,) = config["scrape_configs"]
        job["authorization"]["credentials_file"] = str(self._directory / "key")
        job["static_configs"][0]["targets"] = [url.removeprefix("http://") for url in urls]
        self.config.write_text(yaml.safe_dump(config))

    def reload(self) -> None:
        """Reads the configuration again."""
        self._process.send_signal(signal.SIGHUP)

    def _is_ready(self) -> bool | None:
        try:
            return self._client.get("/-/ready").is_success or None
        except httpx2.TransportError:
            return None

    def query(self, expr: str) -> list[float]:
        """The values of an expression now, without those that are not a number."""
        answer = self._client.get("/api/v1/query", params={"query": expr}).json()
        assert answer["status"] == "success", (expr, answer)
        values = [float(series["value"][1]) for series in answer["data"]["result"]]
        return [value for value in values if not math.isnan(value)]

    def rules(self) -> list[dict[str, Any]]:
        """Every alert with its state and health."""
        groups = self._client.get("/api/v1/rules").json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def wait_for_alerts(self, names: set[str]) -> None:
        """Returns once each of these has fired, not necessarily together."""
        missing = set(names)

        def read() -> bool | None:
            missing.difference_update({rule["name"] for rule in self.rules() if rule["state"] == "firing"})
            return None if missing else True

        wait_for(read, lambda: f"these have not fired: {sorted(missing)}")

    def end(self) -> None:
        """Stops the process."""
        self._client.close()
        self._process.terminate()
        self._process.wait()
        self._port.close()
