"""Is `peltier train` with no setting given as good as the best of a grid? MiniLM, few training rows.

    .venv/bin/python benchmarks/defaults.py run --data DIR [--task trec] [--preset lora] [--seed 0] [--part 1/2]
    .venv/bin/python benchmarks/defaults.py show

DIR holds `<task>/train.jsonl.gz`. Each point of the grid trains on rows that the seed draws from that file. Of the
other rows 300 choose the epoch and 1,000 measure. The first seed has every combination. The second seed has the
default's epochs and pooling with every rate, and each other setting that was at most a point worse than the default
with the first seed. The defaults are a point of the grid.

A point appends one line to the output, and points that have a line there do not run again; benchmarks/defaults.jsonl
has those of docs/results.md. The backbone is in bfloat16, on one thread. Several parts may run at a time, each with its
own output.
"""

import argparse
import json
import math
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.checkpoint.config import load_config
from peltier_training.config.defaults import fill_in
from peltier_training.config.preparation import prepare
from peltier_training.config.run import Hyperparameters, Run
from peltier_training.data.data import Data
from peltier_training.data.examples import read_examples
from peltier_training.data.labels import TaskType
from peltier_training.evaluate.export import measure
from peltier_training.evaluate.metrics import BEST
from peltier_training.learners.adapter import AdapterLearner
from peltier_training.sweep.sample import draw, write_examples
from peltier_training.train import learn

DEV_ROWS, TEST_ROWS = 300, 1000
SIZES, SEEDS = (200, 1000), (0, 1)
TASKS: dict[str, tuple[tuple[str, ...], TaskType]] = {
    "trec": (("text",), "classification"),
    "banking77": (("text",), "classification"),
    "sst2": (("sentence",), "classification"),
    "clinc150": (("text",), "classification"),
    "stsb": (("sentence1", "sentence2"), "regression"),
}
PRESETS = ("lora", "compacter", "unipelt-apl", "adamix")
FEW_TASKS = {"unipelt-apl": ("trec", "banking77"), "adamix": ("trec", "banking77")}
RATES = (1e-3, 3e-3)
SECOND_SEED_MARGIN = 0.01
EPOCHS = {200: (8, 24), 1000: (2, 5)}
POOLINGS = ("mean", "pooler")
Cell = tuple[str, str, int]
Setting = tuple[float, int, str]


@dataclass(frozen=True)
class Point:
    """One training of the grid."""

    task: str
    preset: str
    size: int
    seed: int
    learning_rate: float
    epochs: int
    pooling: str

    @property
    def cell(self) -> Cell:
        """What it is compared within."""
        return self.preset, self.task, self.size

    @property
    def setting(self) -> Setting:
        """What the grid varies."""
        return self.learning_rate, self.epochs, self.pooling


def points() -> Iterator[Point]:
    """Every combination, one seed after another."""
    for seed, preset, size, task in product(SEEDS, PRESETS, SIZES, TASKS):
        if task in FEW_TASKS.get(preset, TASKS):
            for rate, epochs, pooling in product(RATES, EPOCHS[size], POOLINGS):
                yield Point(task, preset, size, seed, rate, epochs, pooling)


def is_in_grid(point: Point, values: Mapping[Point, float]) -> bool:
    """Whether `point` is run, given the `values` of those that were run with the first seed."""
    default = default_setting(point.cell)
    if point.seed == SEEDS[0] or point.setting[1:] == default[1:]:
        return True
    first = replace(point, seed=SEEDS[0])
    rate, epochs, pooling = default
    best = replace(first, learning_rate=rate, epochs=epochs, pooling=pooling)
    return values.get(first, -math.inf) >= values.get(best, math.inf) - SECOND_SEED_MARGIN


def run(point: Point, root: Path) -> dict[str, Any]:
    """Trains, and measures on rows that chose nothing."""
    columns, task_type = TASKS[point.task]
    examples = read_examples(root / point.task / "train.jsonl.gz", columns, "label")
    train, rest = draw(examples, point.size, DEV_ROWS + TEST_ROWS, point.seed)
    if task_type == "classification":  # a small draw may miss a label
        known = {example.label for example in train}
        rest = [example for example in rest if example.label in known]
    dev, test = rest[:DEV_ROWS], rest[DEV_ROWS:]
    start = time.process_time()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, rows in (("train", train), ("dev", dev)):
            write_examples(folder / f"{name}.jsonl", rows, columns, "label")
        learned = learn(prepare(create_run(point, folder)))
        learner = learned.learner
        assert isinstance(learner, AdapterLearner)
        metrics = measure(learner.backbone, learner.candidate(), test).metrics
    key = f"eval_{learned.run.metric}"
    return {
        **asdict(point),
        "value": metrics[BEST[task_type]],
        "scores": [entry[key] for entry in learned.history.log if key in entry],
        "test_rows": len(test),
        "cpu_seconds": round(time.process_time() - start, 1),
    }


def create_run(point: Point, folder: Path) -> Run:
    """The run of `point`, whose rows are in `folder`."""
    columns, task_type = TASKS[point.task]
    return Run(
        task=point.task,
        task_type=task_type,
        preset=point.preset,
        backbone="minilm",
        data=Data(folder / "train.jsonl", folder / "dev.jsonl", columns, "label"),
        output=folder / "adapter.safetensors",
        directory=folder / "run",
        hyperparameters=Hyperparameters(epochs=point.epochs, learning_rate=point.learning_rate, seed=point.seed),
        overrides={"pooling": point.pooling},
        device="cpu",
        dtype="bfloat16",
        merge_report=False,
    )


def default_setting(cell: Cell) -> Setting:
    """The settings that `peltier train` chooses by default."""
    preset, task, size = cell
    columns, task_type = TASKS[task]
    data = Data(Path("train.jsonl"), Path("dev.jsonl"), columns, "label")
    run = Run(
        task=task,
        task_type=task_type,
        preset=preset,
        backbone="minilm",
        data=data,
        output=Path("output"),
        directory=Path("directory"),
    )
    filled = fill_in(run, load_config(find_checkpoint("minilm")), size)
    return filled.learning_rate, filled.epochs, filled.overrides.get("pooling", "pooler")


def show(output: Path) -> None:
    """Prints the default of each cell, and the best other setting on the seeds that both have."""
    cells: dict[Cell, dict[Setting, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for line in read_lines(output):
        point = create_point(line)
        cells[point.cell][point.setting][point.seed] = 100 * line["value"]
    print("| preset | task | rows | default (seeds) | above it | by (rate, epochs, pooling; seeds) | settings |")
    print("| --- | --- | --: | --: | --: | --- | --: |")
    gaps: dict[str, list[float]] = defaultdict(list)
    for cell, found in sorted(cells.items()):
        default = found.get(default_setting(cell))
        if default is None:
            continue
        above = {setting: _above(values, default) for setting, values in found.items()}
        best = max(above, key=lambda setting: above[setting])
        gaps[cell[0]].append(above[best])
        ours = sum(default.values()) / len(default)
        named = "-" if found[best] is default else f"{best[0]:g}, {best[1]}, {best[2]}; {len(found[best])}"
        row = (*cell, f"{ours:.1f} ({len(default)})", f"{above[best]:.1f}", named, len(found))
        print("|", *(f"{value} |" for value in row))
    print()
    for preset, values in gaps.items():
        print(f"{preset}: {len(values)} cells, on average {sum(values) / len(values):.2f}, at most {max(values):.1f}")


def _above(values: dict[int, float], default: dict[int, float]) -> float:
    common = values.keys() & default.keys()
    return sum(values[seed] - default[seed] for seed in common) / len(common) if common else -math.inf


def read_lines(output: Path) -> list[dict[str, Any]]:
    """The lines of earlier runs."""
    return [json.loads(line) for line in output.read_text().splitlines()] if output.exists() else []


def create_point(line: dict[str, Any]) -> Point:
    """The point of a line of the output."""
    return Point(**{name: line[name] for name in Point.__dataclass_fields__})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "show"))
    parser.add_argument("--data", type=Path, help="for run")
    parser.add_argument("--task", choices=list(TASKS), action="append")
    parser.add_argument("--preset", choices=PRESETS, action="append")
    parser.add_argument("--seed", type=int, choices=SEEDS, action="append")
    parser.add_argument("--part", default="1/1", help="which share of the points, as in 1/2")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".jsonl"))
    options = parser.parse_args()
    if options.what == "show":
        show(options.output)
        return
    torch.set_num_threads(1)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    part, parts = (int(number) for number in options.part.split("/"))
    chosen = [
        point
        for point in points()
        if point.task in (options.task or TASKS)
        and point.preset in (options.preset or PRESETS)
        and point.seed in (options.seed or SEEDS)
    ]
    done = {create_point(line): line["value"] for line in read_lines(options.output)}
    for point in chosen[part - 1 :: parts]:
        if point not in done and is_in_grid(point, done):
            line = run(point, options.data)
            done[point] = line["value"]
            with options.output.open("a") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
