"""`peltier sweep` as a user meets it, and as a crash leaves it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import psutil
import pytest
from peltier_training.sweep.command import count_trials
from rich.console import Console

from tests.training.sweep.conftest import Tables

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def arguments(tables: Tables, tmp_path: Path) -> list[str]:
    """A sweep of six trials without a file."""
    task = tables["tasks"]["toy"]
    flags = {"task": "toy", **task, "backbone": tables["backbone"], "output": tmp_path / "out", "device": "cpu"}
    words = [f"--{name}={value}" for name, value in flags.items()]
    words += ["--seed=0", "--seed=1", "--seed=2", "--preset=lora", "--set=rank=1", "--set=rank=2", "--size=16"]
    words += ["--epochs=1", "--batch-size=4", "--max-length=32", "--learning-rate=0.05", "--workers=1"]
    return ["sweep", *words]


@pytest.fixture
def start(arguments: list[str], tmp_path: Path) -> Iterator[Start]:
    """`start(flag, …)`: the command in a process group of its own, of which nothing stays."""
    started: list[subprocess.Popen[str]] = []

    def call(*more: str) -> "subprocess.Popen[str]":
        command = [str(Path(sys.executable).with_name("peltier")), *arguments, *more, "--json"]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen(command, text=True, env=environment, start_new_session=True, **pipes))  # type: ignore[call-overload]
        return started[-1]

    yield call
    for process in started:
        for left in members(process.pid):
            left.kill()
        process.communicate()


def members(group: int) -> list[psutil.Process]:
    """The living processes of a group."""
    found = []
    for process in psutil.process_iter(["status"]):
        try:
            if os.getpgid(process.pid) == group and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process)
        except ProcessLookupError:
            continue
    return found


def wait_for(condition: Callable[[], bool]) -> None:
    """However busy the machine is, this is a matter of seconds."""
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


# After the two trials of the first seed the next would take hours: whenever a signal comes, it comes in time.
ENDLESS = "--epochs=1000000"


def keys(folder: Path) -> list[str]:
    """Of the whole lines of the ledger."""
    path = folder / "results.jsonl"
    return [json.loads(line)["key"] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.slow  # in test_sweep.py stay sweeps that run only what is new
def test_a_killed_sweep_goes_on_where_it_was(start, arguments, tmp_path, peltier):
    """kill -9 in the middle, whatever trial was running, leaves no process and loses the running trial alone."""
    first = start(ENDLESS)
    wait_for(lambda: len(keys(tmp_path / "out")) == 2)
    first.kill()
    first.wait()
    wait_for(lambda: not members(first.pid))
    done = keys(tmp_path / "out")
    assert len(done) == 2
    ended = peltier(*arguments, "--json")
    assert ended.status == 0
    assert "6 trials, 2 of them done, 1 at a time" in ended.err
    assert keys(tmp_path / "out")[:2] == done
    assert len(set(keys(tmp_path / "out"))) == len(keys(tmp_path / "out")) == 6
    rows = json.loads(ended.out)["rows"]
    assert [row["group"] for row in rows] == [{"method": "lora", "rank": "1"}, {"method": "lora", "rank": "2"}]
    assert all(row["values"]["toy accuracy"]["count"] == 3 for row in rows)


@pytest.mark.parametrize(
    "executor", [pytest.param("processes", marks=pytest.mark.slow), pytest.param("ray", marks=pytest.mark.alone)]
)
def test_ctrl_c_ends_with_a_table(executor: str, start: Start, tmp_path: Path):
    """The terminal sends it to every process of the group; what is done is in the table, and nobody complains."""
    process = start(ENDLESS, f"--executor={executor}")
    wait_for(lambda: len(keys(tmp_path / "out")) == 2 or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    os.killpg(process.pid, signal.SIGINT)
    _, progress = process.communicate()
    assert process.returncode == 130, progress
    assert progress.splitlines()[-1] == "stopped; the same command continues from here"
    assert "Traceback" not in progress
    assert (tmp_path / "out" / "table.md").is_file()
    wait_for(lambda: not members(process.pid))


ERRORS = {
    "by": (
        ["--by=colour"],
        "the table cannot be grouped by 'colour'; the trials have task, method, preset, size, seed",
    ),
    "executor": (["--executor=slurm"], "executor 'slurm' is unknown; it is one of processes, ray"),
    "workers": (["--workers=0"], "workers is 0; it must be a number of at least 1"),
}


@pytest.mark.parametrize(("more", "message"), ERRORS.values(), ids=ERRORS)
def test_a_mistake_is_one_line(more, message, arguments, tmp_path, peltier):
    refused = peltier(*arguments, *more)
    assert (refused.status, refused.err.count("\n")) == (1, 1)
    assert refused.err.startswith("error: ")
    assert message in refused.err
    assert not (tmp_path / "out").exists()


def test_skipped_rows_are_told_before_the_first_trial(tables, tmp_path, peltier):
    """How many of each file, and which; two tasks with one file tell it once."""
    train = Path(tables["tasks"]["toy"]["train"])
    (tmp_path / "holes.jsonl").write_text(
        train.read_text() + '{"text": "", "label": "positive"}\n{"text": "a film", "label": null}\n'
    )
    (tmp_path / "sweep.toml").write_text(
        f'[common]\nepochs = 1\n[tasks.toy]\ntrain = "holes.jsonl"\nvalidation = "{train}"\nskip_bad_rows = true\n'
        f'[tasks.other]\ntrain = "holes.jsonl"\nvalidation = "{train}"\nskip_bad_rows = true\n[methods.lora]\n'
    )
    words = [f"--backbone={tables['backbone']}", f"--output={tmp_path / 'out'}", "--size=1000"]
    lines = peltier("sweep", tmp_path / "sweep.toml", *words).err.splitlines()  # there are fewer rows than that
    path = tmp_path / "holes.jsonl"
    assert lines[0] == f"{path}: 2 of 50 rows were skipped"
    assert [line.split(" ")[0] for line in lines[1:]] == [f"{path}:49:", f"{path}:50:", "error:"]


def test_a_bar_on_a_terminal() -> None:
    """With the trials that are done; elsewhere nothing is written."""
    for is_terminal in (True, False):
        file = StringIO()
        with count_trials(Console(file=file, force_terminal=is_terminal, width=80, color_system=None)) as count:
            count(3, 12)
        assert ("3/12" in file.getvalue()) is is_terminal
        assert file.getvalue() == "" or is_terminal
