"""The number of threads to start."""

import os
from pathlib import Path

import pytest
from peltier_backbone.machine.cores import default_threads, usable_cores, wait_passively

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


@pytest.mark.parametrize("limit", ["50000 100000", "100000 100000", "140000 100000"])
def test_a_containers_cpu_limit_counts(limit: str, tmp_path: Path):
    """About one core's time is one thread, and less than that is one too."""
    quota = tmp_path / "cpu.max"
    quota.write_text(limit + "\n")
    assert usable_cores(quota) == 1


@pytest.mark.parametrize("limit", ["max 100000\n", "99900000 100000\n", "", "unreadable\n"])
def test_without_a_limit_every_core_counts(limit: str, tmp_path: Path):
    """So it is where the limit is above what the machine has, or cannot be read."""
    quota = tmp_path / "cpu.max"
    quota.write_text(limit)
    assert usable_cores(quota) == CORES


def test_where_there_are_no_control_groups_every_core_counts(tmp_path: Path):
    """The file is not there."""
    assert usable_cores(tmp_path / "cpu.max") == CORES


@pytest.mark.parametrize(("given", "expected"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_threads_sleep_while_they_wait(given: str | None, expected: str, monkeypatch: pytest.MonkeyPatch):
    """Unless the environment of the server lets them spin."""
    monkeypatch.setenv("OMP_WAIT_POLICY", given or "")
    if given is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    wait_passively()
    assert os.environ["OMP_WAIT_POLICY"] == expected


@pytest.mark.parametrize(
    ("given", "expected"), [("3", 3), ("4,2", 4), ("", CORES), ("0", CORES), ("-1", CORES), ("many", CORES)]
)
def test_openmps_own_variable_is_the_default(given: str, expected: int, monkeypatch: pytest.MonkeyPatch):
    """torchrun sets it, so that processes share a machine; what is no positive number is as if it was not set."""
    monkeypatch.setattr("peltier_backbone.machine.cores.usable_cores", lambda: CORES)
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert default_threads() == expected
