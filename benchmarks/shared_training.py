"""A trace of 16 small trainings on MiniLM or another backbone: together, in turns, and one after the other.

    .venv/bin/python benchmarks/shared_training.py --data DIR [--epochs 2] [--backbone examples/backbones/t5-mini]

DIR holds `<task>/train.jsonl.gz`. Each way runs in a process of its own, which loads the backbone once. Times are CPU
seconds of that process after this start. A training ends when its adapter is measured on its validation rows; reports,
whose plots cost the same in each way, are left out. "In turns" is the same with passes of one training. Shortest
first is computed from the times of the trainings one after the other.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from common.harness import Table, create_parser
from default_cells import TASKS
from peltier_training.config.preparation import prepare
from peltier_training.config.run import Hyperparameters, Run
from peltier_training.data.data import Data, read_labelled
from peltier_training.data.writing import write_examples
from peltier_training.fit import shared_steps
from peltier_training.fit.shared_steps import Member, SharedSteps
from peltier_training.sweep.worker import draw
from peltier_training.train import learn

VALIDATION_ROWS = 40
WAYS = ("together", "in turns", "one by one")


@dataclass(frozen=True)
class Request:
    """One training of the trace."""

    task: str
    preset: str
    rows: int
    overrides: Mapping[str, str]


def list_trace() -> list[Request]:
    """Sixteen trainings of eight presets, with other ranks, tasks and sizes."""
    presets: Sequence[tuple[str, Mapping[str, str]]] = (
        ("compacter", {}),
        ("lora", {"rank": "4"}),
        ("houlsby", {}),
        ("unipelt-apl", {}),
        ("lora", {"rank": "16", "targets": "query,key,value"}),
        ("adamix", {}),
        ("bitfit", {}),
        ("compacter", {"bottleneck": "48"}),
    )
    tasks = ("banking77", "trec", "sst2", "stsb")
    return [
        Request(tasks[number % 4], *_swap(presets[number % 8], 64 + 64 * (number * 5 % 7 % 4))) for number in range(16)
    ]


def _swap(preset: tuple[str, Mapping[str, str]], rows: int) -> tuple[str, int, Mapping[str, str]]:
    return preset[0], rows, preset[1]


def create_run(number: int, request: Request, given: argparse.Namespace, folder: Path) -> Run:
    """The run of a training, whose rows are written to `folder`."""
    source = TASKS[request.task]
    path = given.data / request.task / "train.jsonl.gz"
    data = Data(path, path, source.columns, source.label)
    examples = list(read_labelled(data, source.type).train.examples)
    folder.mkdir()
    parts = draw(examples, request.rows, VALIDATION_ROWS, number)
    files = [folder / "train.jsonl", folder / "validation.jsonl"]
    known = {example.label for example in parts[0]}
    for file, own in zip(files, parts, strict=True):
        kept = own if source.type == "regression" else [one for one in own if one.label in known]
        write_examples(file, kept, source.columns, source.label)
    return Run(
        task="toy",
        task_type=source.type,
        preset=request.preset,
        backbone=given.backbone,
        data=Data(*files, source.columns, source.label),
        output=folder / "adapter.safetensors",
        directory=folder / "run",
        hyperparameters=Hyperparameters(seed=number, epochs=given.epochs),
        overrides=request.overrides,
        device="cpu",
        threads=1,
    )


def run_way(way: str, runs: Sequence[Run]) -> dict[str, Any]:
    """CPU seconds until each training ends, and the peak memory of this process."""
    together = SharedSteps()
    together.load(runs[0].backbone, device="cpu", dtype="float32")
    if way == "in turns":
        shared_steps._PASS_TOKENS = 0  # no pass has the rows of two trainings
    ends, start = [0.0] * len(runs), time.process_time()

    def run_one(number: int) -> None:
        with together.join(runs[number].output.parent) as member:
            _train(runs[number], member)
            ends[number] = time.process_time() - start

    threads = [threading.Thread(target=run_one, args=(number,)) for number in range(len(runs))]
    for thread in threads:
        thread.start()
        if way == "one by one":
            thread.join()
    for thread in threads:
        thread.join()
    assert all(ends), "every training ends"
    return {"ends": ends, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def _train(run: Run, member: Member) -> None:
    learned = learn(prepare(run), member=member)
    learned.learner.evaluate(learned.validation)


def main(given: argparse.Namespace) -> None:
    """Run each way in a process of its own, and print the table."""
    table = Table("", "last, CPU s", "mean, CPU s", "peak MB")
    for way in WAYS:
        options = ["--data", str(given.data), "--epochs", str(given.epochs), "--backbone", given.backbone]
        command = [sys.executable, __file__, *options, "--way", way]
        output = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL
        ).stdout
        found = json.loads(output.splitlines()[-1])
        _show(table, way, found["ends"], found["peak_mb"])
    seconds = [end - before for before, end in zip([0.0, *found["ends"]], found["ends"], strict=False)]
    _show(table, "one by one, shortest first", list(accumulate(sorted(seconds))), found["peak_mb"])


def _show(table: Table, name: str, ends: Sequence[float], peak: float) -> None:
    table.row(name, f"{max(ends):.1f}", f"{statistics.mean(ends):.1f}", f"{peak:.0f}")


def _parse() -> argparse.Namespace:
    parser = create_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--backbone", default="minilm")
    parser.add_argument("--way", choices=WAYS)
    found = parser.parse_args()
    found.data = found.data.resolve()
    if Path(found.backbone).is_dir():
        found.backbone = str(Path(found.backbone).resolve())
    return found


if __name__ == "__main__":
    given = _parse()
    if given.way is None:
        main(given)
    else:
        os.environ["HF_HUB_OFFLINE"] = "1"
        with tempfile.TemporaryDirectory() as folder:
            runs = [
                create_run(number, one, given, Path(folder) / str(number)) for number, one in enumerate(list_trace())
            ]
            print(json.dumps(run_way(given.way, runs)))
            os.chdir("/")
