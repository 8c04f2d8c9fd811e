"""Trials on a cluster of Ray of this machine's own."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from peltier_training.errors import TrainingError
from peltier_training.sweep.executor import Executor, open_executor
from peltier_training.sweep.sweep import Sweep

MakeSweep = Callable[..., Sweep]
Tables = dict[str, Any]
pytestmark = pytest.mark.xdist_group("ray")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Executor]:
    """One for all tests, of a single worker."""
    with open_executor("ray", "cpu", 1) as executor:
        yield executor


def test_ray_finds_what_processes_find(cluster: Executor, make_sweep: MakeSweep, tables: Tables):
    """The same trials with the same numbers, and a sweep of either goes on where the other has stopped."""
    tables["methods"] = {"wild": {"preset": "lora", "learning_rate": 1e30}, "lora": {}}
    tables["seeds"] = [0]
    alone, told = make_sweep(tables, "alone"), list[str]()
    ours = replace(make_sweep(tables, "ours"), executor=cluster)
    expected, found = alone.run(print), ours.run(print)
    assert [row.failed for row in found.rows] == [row.failed for row in expected.rows] == [1, 0]
    assert found.rows[1].cells["toy accuracy"] == expected.rows[1].cells["toy accuracy"]
    assert (ours.folder / "trials" / ours.trials[1].key / "log.txt").stat().st_size
    replace(alone, executor=cluster).run(told.append)
    assert told == ["2 trials, 2 of them done, 1 at a time"]


def test_a_killed_task_is_a_failed_trial(cluster: Executor, make_sweep: MakeSweep, tables: Tables, tmp_path: Path):
    """It is not run a second time, and the next trial is; meanwhile nobody listens beyond this machine."""
    tables["common"]["epochs"] = 1_000_000
    endless = make_sweep(tables).trials[:1]
    while any(one.is_task for one in family()):  # the worker of the test before may still be ending
        time.sleep(0.05)
    heard, killed, ended = set[str](), set[int](), threading.Event()

    def watch() -> None:
        while not ended.wait(0.05):
            seen = family()
            if tasks := {one.process.pid for one in seen if one.is_task and one.kill()}:
                heard.update(*(one.listens for one in seen))
                killed.update(tasks)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        ((_, outcome),) = cluster.run(endless, tmp_path / "trials")
    finally:
        ended.set()
        watcher.join()
    assert outcome.failure is not None
    assert outcome.failure.startswith("its process ended before it had a result: ")
    assert len(killed) == 1
    assert heard <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}
    assert heard


@dataclass(frozen=True)
class Relative:
    """A process as it was when it was looked at, for it may be gone by now."""

    process: psutil.Process
    is_task: bool
    listens: frozenset[str]

    def kill(self) -> bool:
        """Whether it was there to be killed."""
        try:
            self.process.kill()
        except psutil.NoSuchProcess:
            return False
        return True


def family() -> list[Relative]:
    """This process and all that it has started and that live."""
    own, found = psutil.Process(), []
    for process in (own, *own.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            connections = process.net_connections("tcp")
            listens = frozenset(one.laddr.ip for one in connections if one.status == psutil.CONN_LISTEN)
            found.append(Relative(process, process.name().startswith("ray::_work"), listens))
    return found


def test_a_gpu_that_ray_does_not_have_is_refused(cluster: Executor):
    """Before anything is run."""
    with pytest.raises(TrainingError, match="device 'cuda' was asked for, but Ray's cluster has no GPU"):
        type(cluster)("cuda", None)  # type: ignore[call-arg]
