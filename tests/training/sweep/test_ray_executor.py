"""Trials on a cluster of Ray of this machine's own."""

import gc
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from peltier_training.errors import TrainingError
from peltier_training.executor.executor import Executor, Failure, ForkServer, open_executor
from peltier_training.sweep.worker import work

from tests.training.sweep.conftest import MakeSweep, Tables

# Ray starts its processes at the lowest priority, where other tests starve them. Quick tests run the same trials in
# processes: test_sweep.py and test_executor.py.
pytestmark = [
    pytest.mark.alone,
    # Ray does not wait for the end of its own processes.
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <function Popen.__del__:pytest.PytestUnraisableExceptionWarning"
    ),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Executor]:
    """One for all tests, of a single worker."""
    with open_executor("ray", ForkServer(), "cpu", 1) as executor:
        yield executor
    del executor
    gc.collect()


def test_ray_finds_what_processes_find(cluster: Executor, make_sweep: MakeSweep, tables: Tables):
    """The same trials with the same numbers, and a sweep of either goes on where the other has stopped."""
    tables["methods"] = {"wild": {"preset": "lora", "learning_rate": 1e30}, "lora": {}}
    tables["seeds"] = [0]
    alone, told = make_sweep(tables, "alone", workers=1), list[str]()
    ours = replace(make_sweep(tables, "ours"), executor=cluster)
    expected, found = alone.run(print), ours.run(print)
    assert [row.failed for row in found.rows] == [row.failed for row in expected.rows] == [1, 0]
    assert found.rows[1].cells["toy accuracy"] == expected.rows[1].cells["toy accuracy"]
    assert (ours.folder / "trials" / ours.trials[1].key / "log.txt").stat().st_size
    replace(alone, executor=cluster).run(told.append)
    assert told == ["2 trials, 2 of them done, 1 at a time"]


@dataclass(frozen=True)
class Deadly:
    """Kills the process that unpickles it, which is the task's, once it has written who listens on this machine."""

    witness: Path

    def __reduce__(self) -> tuple[Any, tuple[str, dict[str, object]]]:
        return exec, (LAST_WORDS, {"witness": str(self.witness), "driver": os.getpid()})


LAST_WORDS = """
import contextlib, json, os, psutil, signal
whole, sockets = psutil.Process(driver), []
for each in (whole, *whole.children(recursive=True)):
    with contextlib.suppress(psutil.NoSuchProcess):  # another may be ending
        sockets += each.net_connections("tcp")
with open(witness, "a") as file:
    print(json.dumps([one.laddr.ip for one in sockets if one.status == "LISTEN"]), file=file)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_task_is_a_failed_trial(cluster: Executor, make_sweep: MakeSweep, tables: Tables, tmp_path: Path):
    """It is not run a second time; meanwhile nobody listens beyond this machine."""
    deadly: Any = Deadly(tmp_path / "witness.jsonl")
    trial = replace(make_sweep(tables).trials[0], parameters=deadly)
    ((_, found),) = cluster.run(work, [(trial, tmp_path / "trials")])
    assert isinstance(found, Failure)
    assert found.startswith("its process ended before it had a result: ")
    (heard,) = map(json.loads, deadly.witness.read_text().splitlines())
    assert heard
    assert set(heard) <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}


def test_a_gpu_that_ray_does_not_have_is_refused(cluster: Executor):
    """Before anything is run."""
    with pytest.raises(TrainingError, match="device is 'cuda', but Ray's cluster has no GPU"):
        type(cluster)("cuda", None)  # type: ignore[call-arg]
