"""`peltier serve --ray` as a process with a Ray of its own."""

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import httpx2
import psutil
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.common.ports import ReservedPort

_START_SECONDS = 400
_END_SECONDS = 120
_REPLICA = "ray::ServeReplica"
# Ray imports jsonschema, which uses these packages of other tests if they are there. Their imports take 2 s of a core,
# and Ray gives its agents 15 s in all.
LEFT_OUT = ("rfc3987_syntax", "rfc3986_validator", "isoduration")


class RayCluster:
    """One that has been started; `wait_until_ready` before it is asked, `end` it after use. `port` is that of another
    one, which reserves it."""

    def __init__(self, log: Path, *flags: str, port: int | None = None, **environment: str) -> None:
        self._log = log
        self._reserved = ReservedPort() if port is None else None
        if self._reserved is not None:
            port = self._reserved.number
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "peltier_client", "serve", "--ray", "--port", str(port), "--threads", "1"]
        # The driver repeats each line of the replicas, with the id of their process.
        path = os.pathsep.join([str(_leave_out(log.parent)), os.environ.get("PYTHONPATH", "")])
        env = {**os.environ, "RAY_DEDUP_LOGS": "0", "RAY_COLOR_PREFIX": "0", "PYTHONPATH": path, **environment}
        with log.open("w") as output:
            self.process = subprocess.Popen([*command, *flags], stdout=output, stderr=output, env=env)
        self.client = httpx2.Client(base_url=self.url, timeout=120)

    def wait_until_ready(self) -> "RayCluster":
        """Itself; fails with its log."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            if "Peltier is ready on" in self.log:
                return self
            time.sleep(0.2)
        raise AssertionError(self.log)

    @property
    def log(self) -> str:
        """What it and its replicas have written."""
        return self._log.read_text()

    @property
    def processes(self) -> list[psutil.Process]:
        """Every process of the cluster."""
        own = psutil.Process(self.process.pid)
        return [own, *own.children(recursive=True)]

    @property
    def replicas(self) -> dict[int, psutil.Process]:
        """The processes of the replicas by their ids."""
        found = {}
        for one in self.processes:
            try:
                if one.cmdline()[0].startswith(_REPLICA):
                    found[one.pid] = one
            except (psutil.NoSuchProcess, IndexError):
                continue
        return found

    def answered_by(self, request_id: str) -> int:
        """The process that answered a request, by its access log."""
        while True:
            for line in self.log.splitlines():
                if request_id in line and (found := re.search(r"ServeReplica\S* pid=(\d+)", line)):
                    return int(found[1])
            time.sleep(0.05)

    def metric(self, name: str, **labels: str) -> Counter[str]:
        """The sum of the samples with these labels, by replica."""
        found = Counter[str]()
        for family in text_string_to_metric_families(self.client.get("/metrics").text):
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    found[sample.labels["replica"]] += sample.value  # type: ignore[assignment]
        return found

    def end(self) -> None:
        """Stops the cluster, or kills what is left of it."""
        left = self.processes if self.process.poll() is None else []
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(_END_SECONDS)
        finally:
            for one in left:
                try:
                    one.kill()
                except psutil.NoSuchProcess:
                    continue
            self.process.wait()
            self.client.close()
            if self._reserved is not None:
                self._reserved.close()


def _leave_out(folder: Path) -> Path:
    """A folder for the path of modules that hides the packages."""
    hidden = folder / "hidden"
    hidden.mkdir()
    for name in LEFT_OUT:
        (hidden / f"{name}.py").write_text('raise ImportError("left out")')
    return hidden
