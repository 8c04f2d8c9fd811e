"""Adapters against full fine-tuning of the same backbone on the same rows, MiniLM, validation.

    .venv/bin/python benchmarks/quality.py --data DIR [--task trec] [--method compacter] [--output runs/quality.jsonl]

DIR holds `<task>/{train,validation}.jsonl.gz`. Every run appends one line to the output. The table has the last line of
each task and method, so runs may be made one at a time. Both train in bfloat16 with float32 parameters and are measured
in float32 (full fine-tuning: bfloat16 autocast).
"""

import argparse
import json
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from common.full_finetuning import FullRun, full_finetuning
from peltier_adapters.spec.parts import count_parameters
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.checkpoint.config import load_config
from peltier_training.config.run import Hyperparameters, Run
from peltier_training.data.data import Data
from peltier_training.data.examples import read_examples
from peltier_training.data.labels import TaskType, find_labels
from peltier_training.evaluate.metrics import BEST
from peltier_training.train import train

MEAN = {"pooling": "mean"}


@dataclass(frozen=True)
class Task:
    """Columns and type of a data set, and what the settings below were tuned to."""

    columns: tuple[str, ...]
    type: TaskType = "classification"
    epochs: dict[str, int] = field(default_factory=dict)
    learning_rates: dict[str, float] = field(default_factory=dict)
    settings: dict[str, dict[str, str]] = field(default_factory=dict)


TASKS = {
    "trec": Task(
        ("text",),
        epochs={"compacter": 6, "unipelt-apl": 5, "adamix": 5, "full": 4},
        learning_rates={"compacter": 3e-3, "unipelt-apl": 1e-3, "adamix": 1e-3, "full": 1e-4},
    ),
    "sst2": Task(
        ("sentence",),
        epochs={"compacter": 3, "unipelt-apl": 3, "adamix": 5, "full": 2},
        learning_rates={"compacter": 2e-3, "unipelt-apl": 1e-3, "adamix": 3e-3, "full": 5e-5},
        settings={"compacter": {"bottleneck": "96", "rank": "8"}},
    ),
    "stsb": Task(
        ("sentence1", "sentence2"),
        "regression",
        epochs={"compacter": 3, "unipelt-apl": 3, "adamix": 6, "full": 3},
        learning_rates={"compacter": 3e-3, "unipelt-apl": 1e-3, "adamix": 3e-3, "full": 1e-4},
    ),
    "banking77": Task(
        ("text",),
        epochs={"compacter": 4, "unipelt-apl": 4, "adamix": 4, "full": 4},
        learning_rates={"compacter": 5e-3, "unipelt-apl": 2e-3, "adamix": 2e-3, "full": 2e-4},
    ),
}
METHODS = ("full", "compacter", "unipelt-apl", "adamix")


def run_adapter(name: str, task: Task, method: str, data: Data, directory: Path) -> tuple[dict[str, float], int]:
    """Metrics of the artifact and its parameters without the head."""
    run = Run(
        task=name,
        task_type=task.type,
        preset=method,
        backbone="minilm",
        data=data,
        output=directory / f"{name}-{method}.safetensors",
        directory=directory / "run",
        hyperparameters=Hyperparameters(epochs=task.epochs[method], learning_rate=task.learning_rates[method]),
        overrides=MEAN | task.settings.get(method, {}),
        device="cpu",
        dtype="bfloat16",
        merge_report=False,
    )
    manifest = train(run).manifest
    config = load_config(find_checkpoint("minilm"))
    return dict(manifest.training.metrics), count_parameters(manifest.parts, config)


def run_full(task: Task, data: Data, directory: Path) -> tuple[dict[str, float], int]:
    """Metrics of full fine-tuning, which trains everything."""
    examples, validation = (read_examples(path, task.columns, "label") for path in (data.train, data.validation))
    settings = FullRun(task.epochs["full"], task.learning_rates["full"], pooling="mean", bf16=True)
    metrics = full_finetuning(find_labels(task.type, examples, None), examples, validation, settings, directory)
    return metrics, load_config(find_checkpoint("minilm")).num_parameters


def run(name: str, method: str, root: Path) -> dict[str, Any]:
    """One line of the output."""
    task = TASKS[name]
    data = Data(root / name / "train.jsonl.gz", root / name / "validation.jsonl.gz", task.columns, "label")
    start = time.process_time()
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        full = method == "full"
        found = run_full(task, data, directory) if full else run_adapter(name, task, method, data, directory)
    return {
        "task": name,
        "method": method,
        "metrics": found[0],
        "parameters": found[1],
        "epochs": task.epochs[method],
        "learning_rate": task.learning_rates[method],
        "settings": task.settings.get(method, {}),
        "cpu_seconds": round(time.process_time() - start),
    }


def show(output: Path) -> None:
    """Prints the table of earlier runs."""
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    last = {(line["task"], line["method"]): line for line in lines}
    total = load_config(find_checkpoint("minilm")).num_parameters
    print(
        f"{'task':12}{'method':14}{'metric':10}{'value':>8}{'- full':>8}{'params %':>10}"
        f"{'epochs':>8}{'lr':>8}{'cpu s':>8}"
    )
    for (name, method), line in sorted(last.items(), key=lambda item: (item[0][0], METHODS.index(item[0][1]))):
        metric = BEST[TASKS[name].type]
        value = line["metrics"][metric]
        full = last.get((name, "full"))
        gap = f"{100 * (value - full['metrics'][metric]):+.1f}" if full else ""
        share = 100 * line["parameters"] / total
        print(
            f"{name:12}{method:14}{metric:10}{value:8.4f}{gap:>8}{share:10.2f}{line['epochs']:8}"
            f"{line['learning_rate']:8.0e}{line['cpu_seconds']:8}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--task", choices=list(TASKS), action="append")
    parser.add_argument("--method", choices=METHODS, action="append")
    parser.add_argument("--output", type=Path, default=Path("runs/quality.jsonl"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    for name in options.task or TASKS:
        for method in options.method or METHODS:
            line = json.dumps(run(name, method, options.data))
            with options.output.open("a") as file:
                file.write(line + "\n")
    show(options.output)


if __name__ == "__main__":
    main()
