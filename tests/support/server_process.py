"""`peltier serve` as a separate process on a free port."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import httpx2

from tests.support.forked_server import ForkedServer

_START_SECONDS = 180


class Server:
    """One that has been started; `wait_until_ready` before it is asked, `end` it after use.

    `under` is a command that runs another in its place, which is then a new interpreter; else the process is forked
    from one that has imported what a server does, and runs the Python in `first` before the command.
    """

    def __init__(self, log: Path, *flags: str, under: Sequence[str] = (), first: str = "", **environment: str) -> None:
        self._log = log
        arguments, env = ["serve", "--port", "0", "--threads", "1", *flags], {**os.environ, **environment}
        self.process: ForkedServer | subprocess.Popen[bytes]
        if not under:
            self.process = ForkedServer(arguments, log, env, first)
            return
        command = [*under, sys.executable, "-m", "peltier_client", *arguments]
        with log.open("w") as output:
            self.process = subprocess.Popen(command, stderr=output, stdout=output, env=env)

    def wait_until_ready(self) -> "Server":
        """Itself; fails with its log."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            ready = re.search(r"ready on (http://\S+) \(try \1/docs\)", self.log)
            if ready:
                self.url = ready[1]
                self.client = httpx2.Client(base_url=self.url, timeout=30)
                return self
            time.sleep(0.05)
        raise AssertionError(self.log)

    @property
    def log(self) -> str:
        """What it has written to its terminal."""
        return self._log.read_text()

    def upload(self, data: bytes) -> httpx2.Response:
        """`POST /v1/adapters`."""
        return self.client.post("/v1/adapters", files={"file": data})

    def predict(self, inputs: object) -> httpx2.Response:
        """`POST /v1/tasks/demo/predict`."""
        return self.client.post("/v1/tasks/demo/predict", json={"inputs": inputs})

    def kill(self) -> None:
        """Kills the process; the operating system's cache survives."""
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """Ends the process and waits for it."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if hasattr(self, "client"):
            self.client.close()
