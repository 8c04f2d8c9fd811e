"""Is `peltier train` with no setting given as good as the best of a grid? MiniLM, few training rows.

    .venv/bin/python benchmarks/defaults.py

It prints the default of each cell (preset, task and number of rows) of `defaults.jsonl`, and the best other setting on
the seeds that both have. The last lines compare the defaults with sweeps of the whole grid and the default itself: with
the setting that is best on the test rows, which nobody can choose, and with the one that is best on the validation
rows, which a sweep chooses. `benchmarks/default_cells.py` adds trainings to this record. The grid of 200 and 1,000 rows
was trained without dropout in the backbone; a setting that was trained with it too counts with it. Its second seed has
only settings that were at most a point worse than the former default, a fixed number of epochs, with the first seed.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from common.harness import create_parser
from default_cells import RECORD, TASKS, has_dropout
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.checkpoint.config import load_config
from peltier_training.config.preparation import fill_in
from peltier_training.config.run import Run
from peltier_training.data.data import Data

FIRST_SEED = 0
# Settings of a cell in the grid: two rates, with two numbers of epochs and of poolings; with 5,000 rows three and one.
WHOLE_GRID = {200: 8, 1_000: 8, 5_000: 6}


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


class EpochMetric(NamedTuple):
    """The metric in percent of the best epoch, on the rows that chose it and on the test rows."""

    validation: float
    test: float


# What a setting reaches, by seed.
Seeds = dict[int, EpochMetric]
Grid = dict[Cell, dict[Setting, Seeds]]


def read_record() -> Iterator[tuple[Cell, Setting, int, EpochMetric]]:
    """The lines of the record, those with dropout in the backbone first."""
    lines = map(json.loads, RECORD.read_text().splitlines())
    for line in sorted(lines, key=has_dropout, reverse=True):
        cell = Cell(line["preset"], line["task"], line["size"])
        setting = Setting(line["learning_rate"], line["epochs"], line["pooling"])
        yield cell, setting, line["seed"], EpochMetric(100 * max(line["scores"]), 100 * line["value"])


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
    return sum(values[seed].test - default[seed].test for seed in common) / len(common) if common else -math.inf


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
        mean = sum(one.test for one in default.values()) / len(default)
        named = "-" if found[best] is default else f"{best[0]:g}, {best[1]}, {best[2]}; {len(found[best])}"
        row = (*cell, f"{mean:.1f} ({len(default)})", f"{above[best]:.1f}", named, len(found))
        print("|", *(f"{value} |" for value in row))
    print()
    for preset, values in gaps.items():
        print(f"{preset}: {len(values)} cells, on average {sum(values) / len(values):.2f}, at most {max(values):.1f}")


def show_sweeps(grid: Grid) -> None:
    """Prints how far sweeps of whole grids, with the default as one more setting, are above the default on average."""
    possible, chosen = [], []
    for cell, found in grid.items():
        tried = {setting: values[FIRST_SEED] for setting, values in found.items() if FIRST_SEED in values}
        default = tried.get(default_setting(cell))
        if default is None or len(tried) <= WHOLE_GRID.get(cell.size, math.inf):
            continue
        top = max(one.validation for one in tried.values())
        possible.append(max(one.test for one in tried.values()) - default.test)
        chosen.append(fmean(one.test for one in tried.values() if one.validation == top) - default.test)
    print(f"\nsweeps of {len(possible)} cells are above the default, on average with standard error:")
    for name, values in (("test", possible), ("validation", chosen)):
        error = stdev(values) / math.sqrt(len(values))
        print(f"the best setting on the {name} rows by {fmean(values):.2f} ({error:.2f}), at most by {max(values):.1f}")


def main() -> None:
    create_parser(__doc__).parse_args()
    grid: Grid = defaultdict(lambda: defaultdict(dict))
    for cell, setting, seed, measured in read_record():
        grid[cell][setting].setdefault(seed, measured)
    show(grid)
    show_sweeps(grid)


if __name__ == "__main__":
    main()
