"""Adapters of a T5 against full fine-tuning of the same checkpoint and against the bare one, as text-to-text tasks.

    .venv/bin/python benchmarks/t5_quality.py --data DIR --backbone DIR [--task trec] [--method compacter]

DIR holds `<task>/{train,validation}.jsonl.gz`. Every run appends one line to the output. The table has the last line of
each task and method, so runs may be made one at a time. All methods read the same texts, are measured by the same
forward pass on the whole validation set, and keep the best epoch. `bare` is the checkpoint without training: it answers
the likeliest label string, or its generated text. Its line also has the accuracy of the commonest training label.
"""

import argparse
import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from common.full_text_finetuning import FullTextRun, full_text_finetuning
from peltier_adapters.spec.parts import count_parameters
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.checkpoint.config import load_config
from peltier_backbone.load import load_backbone
from peltier_training.config.run import Hyperparameters, Run
from peltier_training.config.task import create_task
from peltier_training.config.text_options import TextOptions
from peltier_training.data.data import Data
from peltier_training.data.examples import Example, read_examples, subsample
from peltier_training.data.labels import TaskType, find_labels
from peltier_training.evaluate.metrics import BEST
from peltier_training.evaluate.text_examination import examine
from peltier_training.train import train

METHODS = ("bare", "full", "compacter", "unipelt-apl", "adamix")


@dataclass(frozen=True)
class Recipe:
    """How a method trains: its highest learning rate, and its preset's settings."""

    learning_rate: float
    settings: Mapping[str, str] = field(default_factory=dict)


RECIPES = {
    "bare": Recipe(0.0),
    "full": Recipe(1e-3),
    "compacter": Recipe(1e-2, {"bottleneck": "64", "rank": "8"}),
    "unipelt-apl": Recipe(3e-3, {"bottleneck": "128", "rank": "16", "norms": "true"}),
    "adamix": Recipe(4e-3, {"bottleneck": "192", "norms": "true"}),
}


@dataclass(frozen=True)
class Task:
    """Where a data set is, how it is read, for how many epochs the methods train on it, the batches of adapters (full
    fine-tuning: 32), and how many inputs' rows are used (None: all)."""

    folder: str
    columns: tuple[str, ...]
    epochs: Mapping[str, int]
    batch_size: int = 16
    train_rows: int | None = None
    label_column: str = "label"
    type: TaskType = "classification"
    text: TextOptions = field(default_factory=TextOptions)
    eval_rows: int | None = None


def _epochs(full: int, unipelt: int, others: int) -> dict[str, int]:
    """Epochs of each method: UniPELT's steps cost most, full fine-tuning is best soonest."""
    return {"bare": 0, "full": full, "unipelt-apl": unipelt, "compacter": others, "adamix": others}


TASKS = {
    "sst2": Task("sst2", ("sentence",), _epochs(3, 5, 5), train_rows=10_000, text=TextOptions(template="sst2")),
    "trec": Task("trec", ("text",), _epochs(5, 10, 10)),
    "banking77": Task("banking77", ("text",), _epochs(6, 8, 10)),
    "e2e": Task(
        "e2e_nlg",
        ("meaning_representation",),
        _epochs(2, 2, 2),
        batch_size=32,
        train_rows=1000,
        label_column="human_reference",
        type="text2text",
        text=TextOptions(max_new_tokens=96),
        eval_rows=100,
    ),
}


@dataclass(frozen=True)
class Setting:
    """One run of one method."""

    name: str
    method: str
    backbone: str
    device: str
    dtype: str

    @property
    def epochs(self) -> int:
        return self.task.epochs[self.method]

    @property
    def recipe(self) -> Recipe:
        return RECIPES[self.method]

    @property
    def task(self) -> Task:
        return TASKS[self.name]

    def run(self, data: Data, directory: Path) -> Run:
        """A training run; for full and bare only its task is of use."""
        preset = self.method if self.method not in ("full", "bare") else "compacter"
        return Run(
            task=self.name,
            task_type=self.task.type,
            preset=preset,
            backbone=self.backbone,
            data=data,
            output=directory / "adapter.safetensors",
            directory=directory / "run",
            hyperparameters=Hyperparameters(
                epochs=self.epochs,
                learning_rate=self.recipe.learning_rate,
                batch_size=self.task.batch_size,
                eval_rows=self.task.eval_rows,
            ),
            text=replace(self.task.text, task_prefix=False),
            overrides=self.recipe.settings,
            device=self.device,
            dtype=self.dtype,
            merge_report=False,
        )


def run_adapter(setting: Setting, data: Data, directory: Path) -> tuple[dict[str, float], int]:
    """Metrics of the artifact, and its parameters."""
    manifest = train(setting.run(data, directory)).manifest
    return dict(manifest.training.metrics), count_parameters(manifest.parts, _config(setting))


def run_without(setting: Setting, data: Data, directory: Path) -> tuple[dict[str, float], int]:
    """Metrics of the whole model, trained or as it is, and the parameters that were trained; `directory`/tuned is the
    trained one."""
    run = setting.run(data, directory).resolved(_config(setting))
    examples, validation = (read_examples(path, data.text_columns, data.label_column) for path in _files(data))
    labels = find_labels(run.task_type, examples, data.labels)
    backbone = load_backbone(setting.backbone, device=setting.device)
    task = create_task(run, backbone, labels, examples)
    if setting.method == "bare":
        return dict(examine(backbone, task, None, validation).metrics) | majority(setting.task, examples, validation), 0
    bf16 = setting.dtype == "bfloat16"
    full = FullTextRun(directory, setting.epochs, setting.recipe.learning_rate, bf16=bf16, device=setting.device)
    found = full_text_finetuning(backbone, task, examples, validation, full)
    return found, _config(setting).num_parameters


def majority(task: Task, examples: Sequence[Example], validation: Sequence[Example]) -> dict[str, float]:
    """The accuracy of always answering the commonest label."""
    if task.type != "classification":
        return {}
    common = Counter(example.label for example in examples).most_common(1)[0][0]
    return {"majority": sum(example.label == common for example in validation) / len(validation)}


def measure(setting: Setting, data: Data, keep: Path | None) -> dict[str, Any]:
    """One line of the output."""
    start, cpu = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        if setting.task.train_rows is not None:
            data = replace(data, train=_some(data, setting.task.train_rows, directory))
        one = run_adapter if setting.method not in ("full", "bare") else run_without
        found, parameters = one(setting, data, directory)
        if keep is not None and setting.method == "full":
            shutil.copytree(directory / "tuned", keep)
    return {
        "task": setting.name,
        "method": setting.method,
        "metrics": found,
        "parameters": parameters,
        "epochs": setting.epochs,
        "learning_rate": setting.recipe.learning_rate,
        "settings": setting.recipe.settings,
        "train_rows": setting.task.train_rows,
        "dtype": setting.dtype,
        "cpu_seconds": round(time.process_time() - cpu),
        "seconds": round(time.perf_counter() - start),
    }


def _some(data: Data, rows: int, directory: Path) -> Path:
    """The training rows of `rows` inputs, evenly from the first to the last."""
    examples = subsample(read_examples(data.train, data.text_columns, data.label_column), rows)
    path = directory / "train.jsonl"
    with path.open("w") as file:
        for example in examples:
            texts = (example.input,) if isinstance(example.input, str) else example.input
            row = dict(zip(data.text_columns, texts, strict=True)) | {data.label_column: example.label}
            file.write(json.dumps(row) + "\n")
    return path


def _files(data: Data) -> tuple[Path, Path]:
    return data.train, data.validation


def _config(setting: Setting) -> Any:
    return load_config(find_checkpoint(setting.backbone))


def show(output: Path, backbone: str) -> None:
    """Prints the table of earlier runs."""
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    last = {(line["task"], line["method"]): line for line in lines}
    total = load_config(find_checkpoint(backbone)).num_parameters
    print(
        f"{'task':12}{'method':14}{'metric':10}{'value':>8}{'- full':>8}{'loss':>8}{'params %':>10}"
        f"{'epochs':>8}{'lr':>8}{'cpu s':>8}"
    )
    for (name, method), line in sorted(last.items(), key=lambda item: (item[0][0], METHODS.index(item[0][1]))):
        metric = BEST[TASKS[name].type]
        scale = 1 if metric == "bleu" else 100
        value = scale * line["metrics"][metric]
        full = last.get((name, "full"))
        gap = f"{value - scale * full['metrics'][metric]:+.1f}" if full else ""
        print(
            f"{name:12}{method:14}{metric:10}{value:8.2f}{gap:>8}{line['metrics']['loss']:8.3f}"
            f"{100 * line['parameters'] / total:10.2f}{line['epochs']:8}{line['learning_rate']:8.0e}"
            f"{line['cpu_seconds']:8}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--backbone", required=True)
    parser.add_argument("--task", choices=list(TASKS), action="append")
    parser.add_argument("--method", choices=METHODS, action="append")
    parser.add_argument("--keep", type=Path, help="a new folder for the checkpoint that full fine-tuning ends with")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="bfloat16", choices=["float32", "bfloat16"])
    parser.add_argument("--output", type=Path, default=Path("runs/t5_quality.jsonl"))
    options = parser.parse_args()
    if options.device == "cpu":
        torch.set_num_threads(1)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    for name in options.task or TASKS:
        task = TASKS[name]
        folder = options.data / task.folder
        files = folder / "train.jsonl.gz", folder / "validation.jsonl.gz"
        for method in options.method or METHODS:
            setting = Setting(name, method, options.backbone, options.device, options.dtype)
            line = measure(setting, Data(*files, task.columns, task.label_column), options.keep)
            with options.output.open("a") as file:
                file.write(json.dumps(line) + "\n")
    show(options.output, options.backbone)


if __name__ == "__main__":
    main()
