"""Trains `peltier train`'s defaults, or a grid around them, on few rows, and appends each result to a record.

    .venv/bin/python benchmarks/default_cells.py --data DIR [--preset lora] [--task trec] [--size 200] [--seed 0]
        [--grid]

DIR holds `<task>/{train,validation}.jsonl.gz`. A training draws its rows from the train file by its seed. Of the other
rows 300 choose the epoch and 1,000 measure; if there are fewer, rows of the validation file measure too. A training
that has a line in the record is not run again, so the same command continues after a break, and a wider one adds cells.
Repeat an option for several values; without it all are run. `benchmarks/defaults.py` compares the results.
"""

import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from common.harness import create_parser
from peltier_adapters.spec.tasks import TaskType
from peltier_training.config.run import Hyperparameters, Run
from peltier_training.data.data import Data, read_labelled, write_examples
from peltier_training.data.examples import Example
from peltier_training.sweep.worker import draw
from peltier_training.train import train

RECORD = Path(__file__).with_name("defaults.jsonl")
DEV_ROWS, TEST_ROWS = 300, 1_000
SIZES, SEEDS = (200, 1_000, 5_000), (0, 1)
PRESETS = ("compacter", "lora", "unipelt-apl", "adamix")
RATES, POOLINGS = (1e-3, 3e-3), ("mean", "pooler")
EPOCHS = {200: (8, 24, 48), 1_000: (2, 5, 10), 5_000: (2, 5, 10)}
PAIR = ("sentence1", "sentence2")


class Source(NamedTuple):
    """The columns and the type of a task."""

    columns: tuple[str, ...] = ("text",)
    type: TaskType = "classification"
    label: str = "label"


TASKS = {
    "trec": Source(),
    "banking77": Source(),
    "sst2": Source(("sentence",)),
    "clinc150": Source(),
    "stsb": Source(PAIR, "regression"),
    "subj": Source(),
    "ag_news": Source(),
    "sick": Source(PAIR),
    "wnut17": Source(("tokens",), "token-classification", "tags"),
    "sst5": Source(),
    "cola": Source(("sentence",)),
    "mrpc": Source(PAIR),
}


@dataclass(frozen=True)
class Training:
    """One training; a value that is None is the default, and without `epochs` the end is open."""

    task: str
    preset: str
    size: int
    seed: int
    learning_rate: float | None = None
    epochs: int | None = None
    pooling: str | None = None


def list_trainings(
    *, tasks: list[str], presets: list[str], sizes: list[int], seeds: list[int], grid: bool
) -> Iterator[Training]:
    """The trainings of these cells, small and first ones first."""
    for seed, size, preset, task in product(seeds, sizes, presets, tasks):
        if not grid:
            yield Training(task, preset, size, seed)
        else:
            for rate, epochs, pooling in product(RATES, EPOCHS[size], _poolings(task, size)):
                yield Training(task, preset, size, seed, rate, epochs, pooling)


def _poolings(task: str, size: int) -> tuple[str, ...]:
    """With 5,000 rows only the default: a training takes minutes, and with fewer rows the other pooling was worse."""
    source = TASKS[task]
    if source.type == "token-classification":
        return ("tokens",)
    return POOLINGS if size < max(SIZES) else ("pooler",) if source.columns == PAIR else ("mean",)


def measure(one: Training, root: Path) -> dict[str, Any]:
    """Train, and measure on rows that chose nothing."""
    source, start = TASKS[one.task], time.process_time()
    files = [root / one.task / f"{part}.jsonl.gz" for part in ("train", "validation")]
    data = Data(files[0], files[1], source.columns, source.label)
    found = read_labelled(data, source.type)
    examples = list(found.train.examples)
    drawn, rest = draw(examples, min(one.size, len(examples) - DEV_ROWS), DEV_ROWS + TEST_ROWS, one.seed)
    others = [*rest, *found.validation.examples]
    if source.type == "classification":  # a small draw may miss a label
        known = {example.label for example in drawn}
        others = [example for example in others if example.label in known]
    dev, test = others[:DEV_ROWS], others[DEV_ROWS : DEV_ROWS + TEST_ROWS]
    with tempfile.TemporaryDirectory() as folder:
        result = train(create_run(one, data, {"train": drawn, "dev": dev}, Path(folder)))
    report = result.report
    numbers, resolved = report.training.hyperparameters, report.resolved
    assert resolved is not None, "a new report has it"
    used = replace(
        one,
        learning_rate=numbers["learning_rate"],
        epochs=None if numbers["open_end"] else numbers["epochs"],
        pooling=resolved.pooling,
    )
    return {
        **asdict(used),
        "value": result.learner.evaluate(test).metrics[report.metric],
        "scores": [point.value for point in report.curves.validation[report.metric]],
        "steps": resolved.steps,
        "best_step": resolved.best_step,
        "ended": resolved.ended,
        "backbone_dropout": numbers["backbone_dropout"],
        "dtype": numbers["dtype"],
        "test_rows": len(test),
        "cpu_seconds": round(time.process_time() - start, 1),
    }


def create_run(one: Training, data: Data, parts: Mapping[str, Sequence[Example]], folder: Path) -> Run:
    """The run of `one` on the rows `parts`, which are written to `folder`."""
    for name, rows in parts.items():
        write_examples(folder / f"{name}.jsonl", rows, data.text_columns, data.label_column)
    return Run(
        task=one.task,
        task_type=TASKS[one.task].type,
        preset=one.preset,
        backbone="minilm",
        data=replace(data, train=folder / "train.jsonl", validation=folder / "dev.jsonl"),
        output=folder / "adapter.safetensors",
        directory=folder / "run",
        hyperparameters=Hyperparameters(seed=one.seed, epochs=one.epochs, learning_rate=one.learning_rate),
        overrides={} if one.pooling is None else {"pooling": one.pooling},
        device="cpu",
        merge_report=False if one.preset == "adamix" else None,
        threads=1,
    )


def read_done() -> set[Training]:
    """The trainings that the record has with dropout in the backbone, the default. Those with default values are also
    given as they are asked for."""
    lines = map(json.loads, RECORD.read_text().splitlines())
    done = {Training(*(line[field.name] for field in fields(Training))) for line in lines if has_dropout(line)}
    return done | {replace(one, learning_rate=None, pooling=None) for one in done if one.epochs is None}


def has_dropout(line: Mapping[str, Any]) -> bool:
    """Whether a line is of a training with dropout in the backbone. Early ones had none, and do not say."""
    return bool(line.get("backbone_dropout"))


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder for each task")
    parser.add_argument("--task", action="append", choices=list(TASKS))
    parser.add_argument("--preset", action="append", choices=PRESETS)
    parser.add_argument("--size", action="append", type=int, choices=SIZES)
    parser.add_argument("--seed", action="append", type=int)
    parser.add_argument("--grid", action="store_true", help="train a grid of rates, epochs and poolings")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for one in list_trainings(
        tasks=options.task or list(TASKS),
        presets=options.preset or list(PRESETS),
        sizes=options.size or list(SIZES),
        seeds=options.seed or list(SEEDS),
        grid=options.grid,
    ):
        if one not in read_done():  # read again, as others may run beside this one
            line = json.dumps(measure(one, options.data))
            print(line, flush=True)
            with RECORD.open("a") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
