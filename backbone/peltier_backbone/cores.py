"""The cores that this process may keep busy, and how its threads share them with others.

It imports no torch: OpenMP reads its settings when torch is imported, so they must be made before.
"""

import os
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def wait_passively() -> None:
    """Let OpenMP's threads sleep while they wait for each other, unless `OMP_WAIT_POLICY` says otherwise; to be called
    before torch is imported. Spinning, they take the cores from other processes and from those they wait for."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def usable_cores(quota: Path = _QUOTA) -> int:
    """The cores that the process may run on, or fewer where its control group gives it less time (a container's CPU
    limit, cgroup v2): threads beyond that only wait for each other."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        limit, period = quota.read_text().split()
        return max(1, min(cores, round(int(limit) / int(period))))
    except (OSError, ValueError):  # no cgroup v2, or "max": no limit
        return cores


def default_threads() -> int:
    """`OMP_NUM_THREADS` if it is a positive number, as torchrun sets it for processes that share a machine; else all
    usable cores."""
    given = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()  # a list has a number for each level
    return int(given) if given.isdecimal() and int(given) > 0 else usable_cores()
