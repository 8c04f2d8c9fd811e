"""Work on what others have written, in a process with limits of the system and without this one's environment.

The module that does the work ends with `answer(…)`; `run` starts it. Imports no torch.
"""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peltier_adapters.errors import AdapterError

_OPEN_FILES = 256


@dataclass(frozen=True)
class Limits:
    """The most of the process: bytes of memory and seconds of a processor beyond those used so far, the bytes of a file
    that it writes, and the seconds from now until it is killed."""

    memory_bytes: int
    cpu_seconds: int
    file_bytes: int
    seconds: int

    def apply(self) -> None:
        """For this process, for ever. Later limits may be lower."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        _lower(resource.RLIMIT_AS, _address_space() + self.memory_bytes)
        _lower(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + self.cpu_seconds)
        _lower(resource.RLIMIT_FSIZE, self.file_bytes)
        _lower(resource.RLIMIT_NOFILE, _OPEN_FILES)
        # The kernel ends the process, whatever it waits for.
        signal.alarm(self.seconds)


def _lower(kind: int, limit: int) -> None:
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def _address_space() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:  # not Linux
        return 0
    return pages * resource.getpagesize()


def run(module: str, job: object, name: str, environment: Mapping[str, str]) -> Any:
    """What `module` answers to `job`. Raises an AdapterError if it refuses, or if a limit ends it; `name` is what it
    reads."""
    done = subprocess.run(  # noqa: S603 - our own module
        [sys.executable, "-P", "-m", module],
        input=json.dumps(job),
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
        capture_output=True,
        text=True,
    )
    if done.returncode == -signal.SIGALRM:
        raise AdapterError(f"{name} has not been read within its time")
    if done.returncode < 0:
        raise AdapterError(
            f"{name}: the process that read it was ended by signal {-done.returncode}, as when its memory or time is "
            "used up"
        )
    if done.returncode:
        raise RuntimeError(f"{module} failed: {done.stderr}")
    found = json.loads(done.stdout)
    if "error" in found:
        raise AdapterError(found["error"])
    return found["answer"]


def answer(work: Callable[[Any], Any]) -> None:
    """Write what `work` returns for the job, or the AdapterError that it raises."""
    job = json.load(sys.stdin)
    try:
        found = {"answer": work(job)}
    except AdapterError as error:
        found = {"error": str(error)}
    json.dump(found, sys.stdout)
