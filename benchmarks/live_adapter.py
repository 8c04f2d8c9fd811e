"""What it costs to turn examples into a live, proved adapter, in CPU seconds of one core, and how good it is.

    .venv/bin/python benchmarks/live_adapter.py --data DIR [--task banking77] [--rows 500] [--seed 0]
        [--set first_block=3 --set epochs=8]

DIR holds `<task>/{train,validation}.jsonl.gz`. Rows of the train file, drawn by the seed, are posted to
`peltier serve`; a worker with one thread trains them, and the server proves and publishes the adapter. Then the task is
asked about all rows of the validation file, which chose nothing. Seconds are those of the worker with the processes of
its trainings, and of the server, from the request to the published version. The worker's start is paid once for all of
its trainings and is given by itself.
"""

import gzip
import json
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common.harness import Table, create_parser
from common.serving import PELTIER, serving
from default_cells import TASKS
from peltier_client import Client

_TICKS = os.sysconf("SC_CLK_TCK")
_ASKED_AT_ONCE = 32


def read_rows(path: Path, task: str) -> list[dict[str, str]]:
    (column,), label = TASKS[task].columns, TASKS[task].label
    with gzip.open(path, "rt") as lines:
        return [{"text": row[column], "label": str(row[label])} for row in map(json.loads, lines)]


def read_setting(text: str) -> tuple[str, Any]:
    """NAME=VALUE, a number if it is one."""
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


class SessionCpu:
    """The CPU time of all processes of a session, also of those that have ended and were waited for."""

    def __init__(self, session: int) -> None:
        self._session, self._begun = session, 0.0

    def begin(self) -> None:
        self._begun = self._total()

    def seconds(self) -> float:
        """Since `begin`."""
        return self._total() - self._begun

    def _total(self) -> float:
        return sum(map(self._of, Path("/proc").glob("[0-9]*/stat")))

    def _of(self, path: Path) -> float:
        try:
            values = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            return 0.0
        return sum(map(int, values[11:15])) / _TICKS if int(values[3]) == self._session else 0.0


@contextmanager
def working(store: Path) -> Iterator[SessionCpu]:
    """A worker with one thread, in a session of its own."""
    command = [*PELTIER, "worker", "--store", str(store), "--backbone", "minilm", "--threads", "1"]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        yield SessionCpu(process.pid)
    finally:
        process.terminate()
        process.wait()


def accuracy(client: Client, task: str, rows: Sequence[Mapping[str, str]]) -> float:
    """The share of rows whose answer is their label."""
    right = 0
    for first in range(0, len(rows), _ASKED_AT_ONCE):
        own = rows[first : first + _ASKED_AT_ONCE]
        found = client.predict(task, [row["text"] for row in own])
        right += sum(one.label == row["label"] for one, row in zip(found, own, strict=True))
    return right / len(rows)


def main() -> None:
    parser = create_parser(__doc__, rows=500, seed=0)
    parser.add_argument("--data", type=Path, required=True, help="a folder for each task")
    known = [name for name, one in TASKS.items() if one.type == "classification" and len(one.columns) == 1]
    parser.add_argument("--task", default="banking77", choices=known)
    parser.add_argument("--set", action="append", type=read_setting, default=[], metavar="NAME=VALUE")
    asked = parser.parse_args()
    rows = read_rows(asked.data / asked.task / "train.jsonl.gz", asked.task)
    rest = read_rows(asked.data / asked.task / "validation.jsonl.gz", asked.task)
    rows = random.Random(asked.seed).sample(rows, asked.rows)
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        with serving(store=store) as server, working(store) as worker, Client(server.url) as client:
            # After a first training, of few rows and steps, all imports are done.
            client.train("first", rows[:80], preset="compacter", budget={"steps": 10})
            start = worker.seconds()
            worker.begin()
            served, begun = server.cpu_seconds, time.perf_counter()
            settings = dict(asked.set) or None
            done = client.train(asked.task, rows, preset="compacter", seed=asked.seed, settings=settings)
            took = time.perf_counter() - begun
            found = [worker.seconds(), server.cpu_seconds - served]
            table = Table(
                "settings", "steps", "worker s", "server s", "wall s", "validation", f"{len(rest)} other rows"
            )
            steps = done.progress.step if done.progress else 0
            own = (done.metrics or {})["accuracy"]
            named = " ".join(f"{name}={value}" for name, value in asked.set) or "none"
            table.row(
                named,
                str(steps),
                *(f"{value:.1f}" for value in (*found, took)),
                f"{own:.3f}",
                f"{accuracy(client, asked.task, rest):.3f}",
            )
            print(f"the worker's start with a training of 80 rows and 10 steps: {start:.1f} s")


if __name__ == "__main__":
    main()
