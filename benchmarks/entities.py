"""Entities of WNUT-17: adapters of MiniLM against full fine-tuning on the same rows, with the same tuning.

    .venv/bin/python benchmarks/entities.py run --data DIR [--method compacter] [--learning-rate 3e-3] [--seed 0]
        [--epochs 8] [--batch-size 32] [--set bottleneck=96]
    .venv/bin/python benchmarks/entities.py show

DIR is the folder of wnut17, with {train,validation,test}.jsonl.gz. Each method has as many learning rates, as many
epochs and the same batches. The validation rows choose the epoch and the settings, the test rows choose nothing.
Full fine-tuning is plain transformers, with its own alignment of words and tokens.

A run appends one line to the output, and runs that have a line there do not run again. All train in bfloat16 with
float32 parameters (full fine-tuning: bfloat16 autocast), on one thread; adapters are measured in float32.
"""

import argparse
import gzip
import json
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from common.full_tagging import TagRun, full_tagging
from peltier_adapters.spec.parts import count_parameters
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.checkpoint.config import load_config
from peltier_training.config.run import Hyperparameters, Run
from peltier_training.data.data import Data
from peltier_training.data.labelled_data import read_file
from peltier_training.data.tags import tag_names
from peltier_training.train import train

PARTS = ("train", "validation", "test")
MAX_LENGTH = 128
KEYS = ("method", "learning_rate", "seed", "epochs", "batch_size", "settings")
RATES: Mapping[str, tuple[float, ...]] = {
    "full": (5e-5, 1e-4, 2e-4),
    "compacter": (1e-3, 3e-3, 1e-2),
    "unipelt-apl": (5e-4, 1e-3, 2e-3),
    "adamix": (5e-4, 1e-3, 2e-3),
}


@dataclass(frozen=True)
class Point:
    """One training."""

    method: str
    learning_rate: float
    seed: int
    epochs: int
    batch_size: int
    settings: list[str]
    """Of the preset, NAME=VALUE; full fine-tuning has none."""


def run(point: Point, root: Path) -> dict[str, Any]:
    """One line of the output."""
    start = time.process_time()
    with tempfile.TemporaryDirectory() as scratch:
        found = (_run_full if point.method == "full" else _run_adapter)(point, root, Path(scratch))
    return {**asdict(point), **found, "cpu_seconds": round(time.process_time() - start)}


def _run_full(point: Point, root: Path, directory: Path) -> dict[str, Any]:
    parts = {part: _read(root / f"{part}.jsonl.gz") for part in PARTS}
    tags = tag_names((), json.loads((root / "labels.json").read_text()))
    settings = TagRun(point.epochs, point.learning_rate, point.batch_size, point.seed, MAX_LENGTH, bf16=True)
    return {
        **full_tagging(tags, parts, settings, directory),
        "parameters": load_config(find_checkpoint("minilm")).num_parameters,
    }


def _read(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]


def _run_adapter(point: Point, root: Path, directory: Path) -> dict[str, Any]:
    train_file, validation, test = (root / f"{part}.jsonl.gz" for part in PARTS)
    labels = tuple(json.loads((root / "labels.json").read_text()))
    data = Data(train_file, validation, ("tokens",), "tags", labels)
    done = train(
        Run(
            task="wnut17",
            task_type="token-classification",
            preset=point.method,
            backbone="minilm",
            data=data,
            output=directory / "wnut17.safetensors",
            directory=directory / "run",
            hyperparameters=Hyperparameters(
                epochs=point.epochs,
                learning_rate=point.learning_rate,
                batch_size=point.batch_size,
                max_length=MAX_LENGTH,
                seed=point.seed,
            ),
            device="cpu",
            dtype="bfloat16",
            merge_report=False,
            overrides=dict(setting.split("=") for setting in point.settings),
        )
    )
    assert done.manifest is not None, "an adapter has an artifact"
    rows = read_file(data, test, "token-classification", labels)
    return {
        "validation": done.metrics,
        "test": done.measure(rows.examples),
        "parameters": count_parameters(done.manifest.parts, load_config(find_checkpoint("minilm"))),
    }


def show(output: Path) -> None:
    """Prints, for each method, the settings that are best on the validation rows and their metrics."""
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    print(
        f"{'method':14}{'rate':>8}{'epochs':>8}{'batch':>7}{'runs':>6}{'validation F1':>15}{'test F1':>9}{'- full':>8}"
        "  settings"
    )
    full = None
    for method in RATES:
        own = [line for line in lines if line["method"] == method]
        if not own:
            continue
        groups = {_settings(line): [other for other in own if _settings(other) == _settings(line)] for line in own}
        (rate, epochs, batch_size, settings), best = max(groups.items(), key=lambda group: _mean(group[1]))
        value = _mean(best, "test")
        full = value if method == "full" else full
        gap = "" if full is None else f"{100 * (value - full):+.1f}"
        print(
            f"{method:14}{rate:8.0e}{epochs:8}{batch_size:7}{len(own):6}{_mean(best):15.4f}{value:9.4f}{gap:>8}"
            f"  {' '.join(settings)}"
        )


def _settings(line: dict[str, Any]) -> tuple[float, int, int, tuple[str, ...]]:
    return line["learning_rate"], line["epochs"], line["batch_size"], tuple(line["settings"])


def _mean(runs: list[dict[str, Any]], part: str = "validation") -> float:
    return fmean(line[part]["f1"] for line in runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "show"))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--method", choices=list(RATES), action="append")
    parser.add_argument("--learning-rate", type=float, action="append")
    parser.add_argument("--seed", type=int, action="append")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="of the preset")
    parser.add_argument("--output", type=Path, default=Path("runs/entities.jsonl"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    if options.command == "run":
        if options.data is None:
            parser.error("run needs --data")
        _run_all(options)
    show(options.output)


def _run_all(options: argparse.Namespace) -> None:
    options.output.touch()
    done = [[json.loads(line)[key] for key in KEYS] for line in options.output.read_text().splitlines()]
    for seed in options.seed or [0]:
        for method in options.method or RATES:
            for rate in options.learning_rate or RATES[method]:
                point = Point(method, rate, seed, options.epochs, options.batch_size, options.set)
                if [getattr(point, key) for key in KEYS] not in done:
                    line = json.dumps(run(point, options.data))
                    with options.output.open("a") as file:
                        file.write(line + "\n")


if __name__ == "__main__":
    main()
