"""Is `peltier train` with no setting given as good as the best of a grid? MiniLM, few training rows.

    .venv/bin/python benchmarks/defaults.py

It prints the default of each cell (preset, task and number of rows) of `defaults.jsonl`, and the best other setting on
the seeds that both have. `benchmarks/default_cells.py` adds trainings to this record. The grid was trained without
dropout in the backbone. Its second seed has only settings that were at most a point worse than the former default, a
fixed number of epochs, with the first seed.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from common.harness import create_parser
from default_cells import RECORD, TASKS
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.checkpoint.config import load_config
from peltier_training.config.preparation import fill_in
from peltier_training.config.run import Run
from peltier_training.data.data import Data


class Cell(NamedTuple):
    """What settings are compared within."""

    preset: str
    task: str
    size: int


class Setting(NamedTuple):
    """What the grid varies."""

    learning_rate: float
    epochs: int | None  # None is an open end
    pooling: str


# The metric in percent, by seed.
Seeds = dict[int, float]
Grid = dict[Cell, dict[Setting, Seeds]]


def read_record() -> Iterator[tuple[Cell, Setting, int, float]]:
    """The lines of the record."""
    for line in map(json.loads, RECORD.read_text().splitlines()):
        cell = Cell(line["preset"], line["task"], line["size"])
        yield cell, Setting(line["learning_rate"], line["epochs"], line["pooling"]), line["seed"], line["value"]


def default_setting(cell: Cell) -> Setting:
    """The settings that `peltier train` chooses by default."""
    source, folder = TASKS[cell.task], Path("output")
    data = Data(Path("train.jsonl"), Path("dev.jsonl"), source.columns, source.label)
    run = Run(
        task=cell.task,
        task_type=source.type,
        preset=cell.preset,
        backbone="minilm",
        data=data,
        output=folder,
        directory=folder,
    )
    filled = fill_in(run, load_config(find_checkpoint("minilm")), cell.size)
    return Setting(filled.learning_rate, None, filled.overrides.get("pooling", "pooler"))


def mean_above(values: Seeds, default: Seeds) -> float:
    """How far `values` are above those of the default, on average of the seeds that both have."""
    common = values.keys() & default.keys()
    return sum(values[seed] - default[seed] for seed in common) / len(common) if common else -math.inf


def show(grid: Grid) -> None:
    """Prints a line for each cell, and what presets lose with their defaults."""
    print("| preset | task | rows | default (seeds) | above it | by (rate, epochs, pooling; seeds) | settings |")
    print("| --- | --- | --: | --: | --: | --- | --: |")
    gaps: dict[str, list[float]] = defaultdict(list)
    for cell, found in sorted(grid.items()):
        default = found.get(default_setting(cell))
        if default is None:
            continue
        above = {setting: mean_above(values, default) for setting, values in found.items()}
        best = max(above, key=lambda setting: above[setting])
        gaps[cell.preset].append(above[best])
        mean = sum(default.values()) / len(default)
        named = "-" if found[best] is default else f"{best[0]:g}, {best[1]}, {best[2]}; {len(found[best])}"
        row = (*cell, f"{mean:.1f} ({len(default)})", f"{above[best]:.1f}", named, len(found))
        print("|", *(f"{value} |" for value in row))
    print()
    for preset, values in gaps.items():
        print(f"{preset}: {len(values)} cells, on average {sum(values) / len(values):.2f}, at most {max(values):.1f}")


def main() -> None:
    create_parser(__doc__).parse_args()
    grid: Grid = defaultdict(lambda: defaultdict(dict))
    for cell, setting, seed, value in read_record():
        grid[cell][setting][seed] = 100 * value
    show(grid)


if __name__ == "__main__":
    main()
