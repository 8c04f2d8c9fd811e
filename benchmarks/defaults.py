"""Is `peltier train` with no setting given as good as the best of a grid? MiniLM, few training rows.

    .venv/bin/python benchmarks/defaults.py run --data DIR [--task trec] [--preset lora] [--default] [--part 1/2]
    .venv/bin/python benchmarks/defaults.py show

DIR holds `<task>/train.jsonl.gz`. Each point trains on rows drawn from that file by the seed. Of the rows that are
left, 300 choose the epoch and 1,000 measure. A point appends one line to the output, and points that have a line there
are not run again. Both sides train on a bfloat16 backbone, on one thread; several parts may run at a time.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from peltier_adapters.proof import Candidate
from peltier_training.data import Example, read_examples
from peltier_training.export import measure
from peltier_training.labels import TaskType
from peltier_training.metrics import BEST
from peltier_training.preparation import prepare
from peltier_training.run import Data, Hyperparameters, Run
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
RATES = {
    "compacter": (1e-3, 3e-3, 1e-2),
    "lora": (1e-3, 3e-3, 1e-2),
    "unipelt-apl": (1e-3, 3e-3, 1e-2),
    "adamix": (1e-3, 3e-3, 1e-2),
}
FEW_TASKS = {"unipelt-apl": ("trec", "banking77"), "adamix": ("trec", "banking77")}
EPOCHS = {200: (8, 24), 1000: (2, 5)}


@dataclass(frozen=True)
class Point:
    """One training; what is None is left to the defaults."""

    task: str
    preset: str
    size: int
    seed: int
    learning_rate: float | None = None
    epochs: int | None = None
    pooling: str | None = None

    @property
    def is_default(self) -> bool:
        return self.learning_rate is None


def points(tasks: list[str], presets: list[str], *, default: bool) -> Iterator[Point]:
    """The grid: every rate for the longer training, the two higher ones for the shorter, and the pooler with the middle
    rate. A low rate for few steps learns nothing. With `default`, the points that set nothing."""
    for seed, preset, size, task in product(SEEDS, presets, SIZES, tasks):
        if task not in FEW_TASKS.get(preset, tasks):
            continue
        if default:
            yield Point(task, preset, size, seed)
            continue
        low, middle, high = RATES[preset]
        short, long = EPOCHS[size]
        yield from (Point(task, preset, size, seed, rate, long, "mean") for rate in (middle, high, low))
        yield Point(task, preset, size, seed, middle, short, "mean")
        if seed == SEEDS[0]:
            yield Point(task, preset, size, seed, middle, long, "pooler")


def run(point: Point, root: Path) -> dict[str, Any]:
    """Train, and measure on rows that chose nothing."""
    columns, task_type = TASKS[point.task]
    examples = read_examples(root / point.task / "train.jsonl.gz", columns, "label")
    train, rest = draw(examples, point.size, DEV_ROWS + TEST_ROWS, point.seed)
    if task_type == "classification":  # a small draw may miss a label
        known = {example.label for example in train}
        rest = [example for example in rest if example.label in known]
    dev, test = rest[:DEV_ROWS], rest[DEV_ROWS:]
    start = time.process_time()
    with tempfile.TemporaryDirectory() as scratch:
        learned = learn(prepare(_create(point, Path(scratch), train, dev)))
        adapter = Candidate(point.task, point.preset, learned.model.parts, learned.model.merged(), learned.task)
        metrics = measure(learned.backbone, adapter, test).metrics
    numbers = learned.run.hyperparameters
    scores = [
        entry[f"eval_{learned.run.metric}"] for entry in learned.course.log if f"eval_{learned.run.metric}" in entry
    ]
    return {
        **asdict(point),
        "value": metrics[BEST[task_type]],
        "scores": scores,
        "took": {"rate": numbers.learning_rate, "epochs": numbers.epochs, "batch_size": numbers.batch_size},
        "test_rows": len(test),
        "cpu_seconds": round(time.process_time() - start, 1),
    }


def _create(point: Point, folder: Path, train: list[Example], dev: list[Example]) -> Run:
    columns, task_type = TASKS[point.task]
    data = Data(folder / "train.jsonl", folder / "dev.jsonl", columns, "label")
    for path, rows in ((data.train, train), (data.validation, dev)):
        write_examples(path, rows, columns, "label")
    return Run(
        task=point.task,
        task_type=task_type,
        preset=point.preset,
        backbone="minilm",
        data=data,
        output=folder / "adapter.safetensors",
        directory=folder / "run",
        hyperparameters=Hyperparameters(epochs=point.epochs, learning_rate=point.learning_rate, seed=point.seed),
        overrides={} if point.pooling is None else {"pooling": point.pooling},
        device="cpu",
        dtype="bfloat16",
        merge_report=False,
    )


def show(output: Path) -> None:
    """Default against the best of the grid: mean of the seeds, each with its own best."""
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    cells: dict[tuple[str, str, int], dict[int, dict[str, Any]]] = {}
    for line in lines:
        cell = cells.setdefault((line["preset"], line["task"], line["size"]), {})
        found = cell.setdefault(line["seed"], {"grid": []})
        if line["learning_rate"] is None:
            found["default"] = line
        else:
            found["grid"].append(line)
    print(
        f"{'preset':13}{'task':11}{'rows':>5}{'default':>9}{'best':>8}{'diff':>7}  best points (rate, epochs, pooling)"
    )
    gaps: dict[str, list[float]] = {}
    for (preset, task, size), seeds in sorted(cells.items()):
        whole = [found for found in seeds.values() if "default" in found and found["grid"]]
        if not whole:
            continue
        best = [max(found["grid"], key=lambda line: line["value"]) for found in whole]
        ours = 100 * sum(found["default"]["value"] for found in whole) / len(whole)
        theirs = 100 * sum(line["value"] for line in best) / len(whole)
        gaps.setdefault(preset, []).append(ours - theirs)
        named = "; ".join(f"{line['learning_rate']:g}, {line['epochs']}, {line['pooling']}" for line in best)
        print(f"{preset:13}{task:11}{size:5}{ours:9.1f}{theirs:8.1f}{ours - theirs:+7.1f}  {named}")
    for preset, values in gaps.items():
        print(f"{preset}: on average {sum(values) / len(values):+.2f}, at worst {min(values):+.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "show"))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--task", choices=list(TASKS), action="append")
    parser.add_argument("--preset", choices=list(RATES), action="append")
    parser.add_argument("--default", action="store_true", help="the points that set nothing, in place of the grid")
    parser.add_argument("--part", default="1/1", help="which share of the points, as in 1/2")
    parser.add_argument("--output", type=Path, default=Path("runs/defaults.jsonl"))
    options = parser.parse_args()
    if options.what == "show":
        show(options.output)
        return
    torch.set_num_threads(1)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    part, parts = (int(number) for number in options.part.split("/"))
    chosen = list(points(options.task or list(TASKS), options.preset or list(RATES), default=options.default))
    done = {_identity(json.loads(line)) for line in _lines(options.output)}
    for point in chosen[part - 1 :: parts]:
        if _identity(asdict(point)) not in done:
            line = json.dumps(run(point, options.data))
            with options.output.open("a") as file:
                file.write(line + "\n")


def _lines(output: Path) -> list[str]:
    return output.read_text().splitlines() if output.exists() else []


def _identity(values: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(values[name] for name in Point.__dataclass_fields__)


if __name__ == "__main__":
    main()
