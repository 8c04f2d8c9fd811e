"""What runs trials, chosen by name."""

import multiprocessing
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from peltier_backbone.machine.cores import usable_cores
from peltier_training.errors import TrainingError
from peltier_training.sweep.executor import EXECUTORS, ProcessRunner, TrialPlaces, open_executor
from peltier_training.sweep.sweep import Sweep


@pytest.mark.parametrize("name", EXECUTORS)
def test_nobody_runs_nothing(name: str):
    """Workers are counted from one, whatever runs them."""
    with pytest.raises(TrainingError, match="workers is 0; it must be a number of at least 1"):
        open_executor(name, "cpu", 0).__enter__()


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    """As a sentence that says what to install."""
    monkeypatch.delitem(sys.modules, "peltier_training.sweep.ray_runner", raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(TrainingError, match=r"executor 'ray' needs Ray: pip install \"peltier\[training,ray\]\""):
        open_executor("ray", "cpu", 1).__enter__()


MakeSweep = Callable[..., Sweep]
Tables = dict[str, Any]


@pytest.fixture
def endless(make_sweep: MakeSweep, tables: Tables) -> Sweep:
    """Two trials that would take hours."""
    tables["common"]["epochs"] = 1_000_000
    return make_sweep(tables)


def kill_the_first_process() -> None:
    """As soon as there is one, from another thread."""

    def watch() -> None:
        while not (found := multiprocessing.active_children()):
            time.sleep(0.02)
        found[0].kill()

    threading.Thread(target=watch, daemon=True).start()


@pytest.mark.slow
def test_a_killed_trial_is_a_failed_one(endless: Sweep, tmp_path: Path):
    """As the kernel kills what takes too much memory; the reason names the signal."""
    kill_the_first_process()
    trial, outcome = next(ProcessRunner(TrialPlaces((None,))).run(endless.trials[:1], tmp_path / "trials"))
    assert trial == endless.trials[0]
    assert outcome.failure is not None
    assert "was killed by signal 9 before it had a result" in outcome.failure


@pytest.mark.slow  # in the gate trials run in the process of the test: test_sweep.py and test_worker.py
def test_a_long_outcome_is_read_while_its_process_waits(make_sweep: MakeSweep, tables: Tables, tmp_path: Path):
    """A pipe holds 64 KiB, and who writes more stays until it is read."""
    trial = make_sweep(tables).trials[0]
    long = replace(trial, run=replace(trial.run, preset="x" * 200_000))
    ((_, outcome),) = ProcessRunner(TrialPlaces((None,))).run([long], tmp_path / "trials")
    assert outcome.failure is not None
    assert outcome.failure.startswith("preset 'xxx")
    assert len(outcome.failure) > len(long.run.preset)


def test_a_device_is_what_a_worker_sees(monkeypatch: pytest.MonkeyPatch):
    """One GPU a worker, several workers a GPU where more are asked for; those that the caller may use."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert TrialPlaces.find("auto", None).devices == ("0", "1")
    assert TrialPlaces.find("cuda", 3).devices == ("0", "1", "0")
    assert TrialPlaces.find("cpu", 3).devices == (None, None, None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    assert TrialPlaces.find("auto", None).devices == ("4", "7")


def test_the_cpu_has_a_worker_a_core(monkeypatch: pytest.MonkeyPatch):
    """Of the cores that this process may use."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert TrialPlaces.find("auto", None).devices == (None,) * usable_cores()
    with pytest.raises(TrainingError, match="device is 'cuda', but torch sees no CUDA device"):
        TrialPlaces.find("cuda", None)
