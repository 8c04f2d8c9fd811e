"""The number of CPU cores that this process may use, and how its waiting threads release them.

This module imports no torch: importing torch makes OpenMP read its settings, so they must be set before.
"""

import os
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def wait_passively() -> None:
    """Let OpenMP's threads sleep while they wait for each other, unless `OMP_WAIT_POLICY` is set. Call it before torch
    is imported. Threads that spin take cores from other processes and from the threads that they wait for."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def usable_cores(quota: Path = _QUOTA) -> int:
    """The number of cores that the process may run on, or fewer if its control group limits its CPU time (a container's
    CPU limit, cgroup v2): more threads than that only wait for each other."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        limit, period = quota.read_text(encoding="utf-8").split()
        return max(1, min(cores, round(int(limit) / int(period))))
    except (OSError, ValueError):  # no cgroup v2, or "max": no limit
        return cores


def default_threads() -> int:
    """`OMP_NUM_THREADS` if it is a positive number (torchrun sets it for processes that share a machine), else the
    number of usable cores."""
    given = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()  # a list has one number for each nesting level
    return int(given) if given.isdecimal() and int(given) > 0 else usable_cores()
