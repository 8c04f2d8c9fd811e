"""What does an int8 backbone cost in quality? MiniLM, 1,000 training rows a set.

    .venv/bin/python benchmarks/int8_quality.py run --data DIR [--task trec] [--preset lora] [--seed 0] [--trained int8]
    .venv/bin/python benchmarks/int8_quality.py show

DIR holds `<task>/{train,validation[,test]}.jsonl.gz`. An adapter is trained on a float32 and on an int8 backbone, on
the same rows in the same order, with the defaults of `peltier train` and five epochs. 300 other training rows choose
the epoch. The first adapter is measured on both backbones and the second in int8, on the rows of validation and test,
2,000 at most.

Each measurement appends one line to the output, and does not run again. The artifacts stay beside it.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from peltier_adapters.artifact.artifact import load_artifact
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone
from peltier_training.config.preparation import prepare
from peltier_training.config.run import Hyperparameters, Run
from peltier_training.data.data import Data
from peltier_training.data.examples import Example, read_examples
from peltier_training.data.labels import TaskType
from peltier_training.evaluate.examination import evaluate
from peltier_training.evaluate.metrics import BEST
from peltier_training.sweep.sample import draw, write_examples
from peltier_training.train import create_record, learn

TRAIN_ROWS, DEV_ROWS, MAX_TEST_ROWS, EPOCHS = 1000, 300, 2000, 5
SEEDS = (0, 1, 2, 3, 4)
DTYPES = ("float32", "int8")
TASKS: dict[str, tuple[tuple[str, ...], TaskType]] = {
    "trec": (("text",), "classification"),
    "banking77": (("text",), "classification"),
    "clinc150": (("text",), "classification"),
    "stsb": (("sentence1", "sentence2"), "regression"),
    "subj": (("text",), "classification"),
    "sst2": (("sentence",), "classification"),
    "sick": (("sentence1", "sentence2"), "classification"),
    "ag_news": (("text",), "classification"),
}
PRESETS = ("compacter", "lora", "unipelt-apl", "adamix")
# Trained, served.
WAYS = (("float32", "float32"), ("float32", "int8"), ("int8", "int8"))


@dataclass(frozen=True)
class Point:
    """One training."""

    task: str
    preset: str
    seed: int
    trained: str


@cache
def backbone_of(dtype: str) -> Backbone:
    """The backbone that adapters are measured on."""
    return load_backbone("minilm", dtype=dtype)


def read_rows(root: Path, point: Point) -> tuple[list[Example], list[Example], list[Example]]:
    """The rows that train, that choose the epoch, and that measure; only with labels that the first have."""
    columns, task_type = TASKS[point.task]
    train, dev = draw(
        read_examples(root / point.task / "train.jsonl.gz", columns, "label"), TRAIN_ROWS, DEV_ROWS, point.seed
    )
    files = [path for name in ("validation", "test") if (path := root / point.task / f"{name}.jsonl.gz").exists()]
    test = [example for path in files for example in read_examples(path, columns, "label")][:MAX_TEST_ROWS]
    if task_type == "regression":
        return train, dev, test
    known = {example.label for example in train}
    return train, *([row for row in rows if row.label in known] for rows in (dev, test))


def train_adapter(point: Point, train: Sequence[Example], dev: Sequence[Example], output: Path) -> None:
    """Trains and writes the artifact."""
    columns, task_type = TASKS[point.task]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, rows in (("train", train), ("dev", dev)):
            write_examples(folder / f"{name}.jsonl", rows, columns, "label")
        run = Run(
            task=point.task,
            task_type=task_type,
            preset=point.preset,
            backbone="minilm",
            data=Data(folder / "train.jsonl", folder / "dev.jsonl", columns, "label"),
            output=output,
            directory=folder / "run",
            hyperparameters=Hyperparameters(epochs=EPOCHS, seed=point.seed),
            device="cpu",
            dtype=point.trained,
            merge_report=False,
        )
        learned = learn(prepare(run))
        learned.learner.deliver(create_record(learned.run, learned.learner.settings, learned.sizes, {}), dev)


def measure(point: Point, served: Sequence[str], root: Path, folder: Path) -> Iterator[dict[str, Any]]:
    """A line for each dtype of `served`."""
    train, dev, test = read_rows(root, point)
    artifact = folder / f"{point.task}-{point.preset}-{point.seed}-{point.trained}.safetensors"
    start = time.process_time()
    if not artifact.exists():
        train_adapter(point, train, dev, artifact)
    for dtype in served:
        backbone = backbone_of(dtype)
        metrics = evaluate(backbone, load_artifact(artifact, backbone), test)
        yield {
            **asdict(point),
            "served": dtype,
            "value": metrics[BEST[TASKS[point.task][1]]],
            "test_rows": len(test),
            "cpu_seconds": round(time.process_time() - start, 1),
        }
        start = time.process_time()


def read_values(output: Path) -> dict[tuple[Point, str], float]:
    """The metrics of earlier runs, in percent."""
    lines = [json.loads(line) for line in output.read_text().splitlines()] if output.exists() else []
    return {
        (Point(**{name: line[name] for name in Point.__dataclass_fields__}), line["served"]): 100 * line["value"]
        for line in lines
    }


def run(options: argparse.Namespace) -> None:
    """Measures what is missing in the output, one seed after another."""
    torch.set_num_threads(1)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    done = read_values(options.output)
    for seed, preset, task, trained in product(options.seed, options.preset, options.task, options.trained):
        point = Point(task, preset, seed, trained)
        missing = [served for way, served in WAYS if way == trained and (point, served) not in done]
        if missing:
            for line in measure(point, missing, options.data, options.output.parent):
                with options.output.open("a") as file:
                    file.write(json.dumps(line) + "\n")


def show(output: Path) -> None:
    """Prints each set and preset: float32, and the differences of the other ways to it, as means over the seeds."""
    values = read_values(output)
    print("| set | preset | seeds | float32 | served in int8 | trained and served in int8 |")
    print("| --- | --- | --: | --: | --: | --: |")
    gaps: dict[tuple[str, str], list[float]] = {way: [] for way in WAYS[1:]}
    for task, preset in product(TASKS, PRESETS):
        seeds = [seed for seed in SEEDS if all((Point(task, preset, seed, way[0]), way[1]) in values for way in WAYS)]
        if not seeds:
            continue
        base, *others = [
            statistics.mean(values[Point(task, preset, seed, trained), served] for seed in seeds)
            for trained, served in WAYS
        ]
        for way, value in zip(WAYS[1:], others, strict=True):
            gaps[way].append(value - base)
        shown = " | ".join(f"{value - base:+.2f}" for value in others)
        print(f"| {task} | {preset} | {len(seeds)} | {base:.2f} | {shown} |")
    for (trained, served), found in gaps.items():
        if found:
            mean = statistics.mean(found)
            between = f"between {min(found):+.2f} and {max(found):+.2f}"
            print(f"trained in {trained}, served in {served}: {len(found)} cells, {mean:+.2f} on average, {between}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "show"))
    parser.add_argument("--data", type=Path, help="for run")
    parser.add_argument("--task", choices=list(TASKS), nargs="+", default=list(TASKS))
    parser.add_argument("--preset", choices=PRESETS, nargs="+", default=PRESETS[:3])
    parser.add_argument("--seed", type=int, choices=SEEDS, nargs="+", default=SEEDS[:2])
    parser.add_argument("--trained", choices=DTYPES, nargs="+", default=DTYPES)
    parser.add_argument("--output", type=Path, default=Path("runs/int8_quality/values.jsonl"))
    options = parser.parse_args()
    if options.what == "show":
        show(options.output)
    else:
        run(options)


if __name__ == "__main__":
    main()
