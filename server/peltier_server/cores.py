"""How many cores this process may keep busy."""

import os
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def usable_cores(quota: Path = _QUOTA) -> int:
    """The cores that the process may run on, or fewer where its control group gives it less time (a container's CPU
    limit, cgroup v2): threads beyond that only wait for each other."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        limit, period = quota.read_text().split()
        return max(1, min(cores, round(int(limit) / int(period))))
    except (OSError, ValueError):  # no cgroup v2, or "max": no limit
        return cores
