"""Work on what others have written, in a process with limits of the system and no environment but the given one.

The module that does the work ends with `answer(…)`; `run` starts it. Imports no torch.
"""

import json
import math
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peltier_adapters.errors import AdapterError

_OPEN_FILES = 256


@dataclass(frozen=True)
class Limits:
    """The most of the process: seconds from now until it is killed, bytes of memory beyond those in use (on Linux),
    bytes of a file that it writes, and seconds of a processor. None is no limit."""

    seconds: int
    memory_bytes: int | None = None
    file_bytes: int | None = None
    cpu_seconds: int | None = None

    def apply(self) -> None:
        """Sets the limits of this process in place of former ones."""
        # The kernel ends the process, whatever it waits for.
        signal.alarm(self.seconds)
        _limit(resource.RLIMIT_NOFILE, _OPEN_FILES)
        if self.memory_bytes is not None and sys.platform == "linux":
            _limit(resource.RLIMIT_AS, _address_space() + self.memory_bytes)
        if self.file_bytes is not None:
            _limit(resource.RLIMIT_FSIZE, self.file_bytes)
        if self.cpu_seconds is not None:
            _limit(resource.RLIMIT_CPU, math.ceil(time.process_time()) + self.cpu_seconds)


def _limit(kind: int, limit: int) -> None:
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0]) * resource.getpagesize()


def run(module: str, job: object, name: str, environment: Mapping[str, str]) -> Any:
    """What `module` answers to `job`, which is about `name`. Raises an AdapterError if it refuses, or if a limit ends
    it."""
    began = time.monotonic()
    done = subprocess.run(  # noqa: S603 - our own module
        [sys.executable, "-P", "-m", module],
        input=json.dumps(job),
        env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
    )
    if done.returncode == -signal.SIGALRM:
        seconds = time.monotonic() - began
        raise AdapterError(f"{name} is not complete after {seconds:.0f} seconds, the most that it may take")
    if done.returncode < 0:
        raise AdapterError(
            f"{name}: the process that works on it was ended by signal {-done.returncode}, as when its memory or time "
            "is used up"
        )
    if done.returncode:
        raise RuntimeError(f"{module} failed: {done.stderr}")
    found = json.loads(done.stdout)
    if "error" in found:
        raise AdapterError(found["error"])
    return found["answer"]


def answer(work: Callable[[Any], Any]) -> None:
    """Write what `work` returns for the job, or the AdapterError that it raises, and end the process with the threads
    that still run."""
    job = json.load(sys.stdin)
    try:
        found = {"answer": work(job)}
    except AdapterError as error:
        found = {"error": str(error)}
    json.dump(found, sys.stdout)
    sys.stdout.flush()
    os._exit(0)
