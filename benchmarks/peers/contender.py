"""One library in its own process, which computes a case on request."""

import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from common.libraries import installed


class Contender:
    """Started with a script of this folder; `origin` is the library it needs beside the environment's own. `peak_bytes`
    is what its process has had in memory at most, after its last case."""

    def __init__(self, name: str, script: str, origin: str | None, *arguments: str) -> None:
        self.name = name
        self.peak_bytes = 0
        environment = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        if origin is not None:
            environment["PYTHONPATH"] = str(installed(origin))
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name(script)), *arguments],
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.cases: list[str] = self._read()

    def seconds(self, case: str) -> float:
        """The CPU time of one run of `case`."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(case) + "\n")
        self._process.stdin.flush()
        seconds: float
        seconds, self.peak_bytes = self._read()
        return seconds

    def close(self) -> None:
        """Ends the process by closing its input."""
        self._process.communicate()

    def _read(self):  # type: ignore[no-untyped-def]
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} has ended with status {self._process.wait()}")
        return json.loads(line)
