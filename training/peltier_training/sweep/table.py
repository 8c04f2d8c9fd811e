"""The results of a sweep as a table: mean and standard deviation over seeds, by any coordinates of the grid;
for terminals, as Markdown, CSV and JSON."""

import csv
import io
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table as RichTable
from rich.text import Text

from peltier_training.config.run import LOWER_IS_BETTER
from peltier_training.errors import TrainingError
from peltier_training.sweep.description import ALL
from peltier_training.sweep.trial import Trial, TrialResult

TableEntry = tuple[Trial, TrialResult]
MEAN = "mean"
ROWS = "rows"
PARAMETERS, EPOCH_SECONDS, SECONDS, MEMORY = "parameters", "s/epoch", "seconds", "memory MiB"
_COSTS = (PARAMETERS, EPOCH_SECONDS, SECONDS, MEMORY)
_MIB = 2**20
_FAILED = "failed"
_DIGITS: Mapping[str, int] = {PARAMETERS: 0, EPOCH_SECONDS: 2, SECONDS: 1, MEMORY: 0}
_METRIC_DIGITS = 4


@dataclass(frozen=True)
class Stat:
    """The mean of `count` values and their sample standard deviation, None for a single value."""

    mean: float
    sd: float | None
    count: int

    @classmethod
    def create(cls, values: Sequence[float]) -> "Stat | None":
        if not values:
            return None
        sd = statistics.stdev(values) if len(values) > 1 else None
        return cls(statistics.fmean(values), sd, len(values))


@dataclass(frozen=True)
class TableRow:
    """One group of trials: its coordinates, a statistic for each column with values, and the number of failed trials.

    `cells` also has the training rows of each metric, which are not a column."""

    labels: tuple[str, ...]
    cells: Mapping[str, Stat]
    failed: int


@dataclass(frozen=True)
class SweepTable:
    """Rows by the coordinates `by`. The columns are tasks, the mean of several tasks, unmerged `routes` of merge
    reports, and costs."""

    by: tuple[str, ...]
    tasks: tuple[str, ...]
    routes: tuple[str, ...]
    rows: tuple[TableRow, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns for which any row has a value."""
        names = (*self.tasks, MEAN, *self.routes, *_COSTS)
        return tuple(name for name in names if any(name in row.cells for row in self.rows))

    @property
    def has_failures(self) -> bool:
        return any(row.failed for row in self.rows)


def rows_of(column: str) -> str:
    """The cell with the training rows of a metric's column."""
    return f"{column} {ROWS}"


def coordinates(trial: Trial) -> dict[str, str]:
    """The coordinates that may group a table."""
    size = ALL if trial.size is None else str(trial.size)
    places = {"task": trial.run.task, "method": trial.method, "preset": trial.run.preset, "size": size}
    return {**places, "seed": str(trial.seed), **trial.axes}


def default_grouping(trials: Iterable[Trial]) -> tuple[str, ...]:
    """Method and axes, after the size if there are several."""
    trials = list(trials)
    axes = dict.fromkeys(name for trial in trials for name in trial.axes)
    several = len({trial.size for trial in trials}) > 1
    return (*(("size",) if several else ()), "method", *axes)


def check_grouping(trials: Iterable[Trial], by: Sequence[str]) -> None:
    """Raise a `TrainingError` for a coordinate that none of `trials` has."""
    known = dict.fromkeys(name for trial in trials for name in coordinates(trial))
    for name in by:
        if name not in known:
            raise TrainingError(f"the table cannot be grouped by {name!r}; the trials have {', '.join(known)}")


def create_table(entries: Sequence[TableEntry], by: Sequence[str]) -> SweepTable:
    """The table of all `entries`; a label is empty if a trial lacks the coordinate."""
    groups: dict[tuple[str, ...], list[TableEntry]] = {}
    for trial, result in entries:
        places = coordinates(trial)
        groups.setdefault(tuple(places.get(name, "") for name in by), []).append((trial, result))
    titles = tuple(dict.fromkeys(_title(trial) for trial, _ in entries))
    rows = [_row(labels, group, titles) for labels, group in groups.items()]
    routes = tuple(dict.fromkeys(name for trial, result in entries for name in _routes(trial, result)))
    return SweepTable(tuple(by), titles, routes, tuple(_sorted(rows)))


def _title(trial: Trial) -> str:
    return f"{trial.run.task} {trial.run.metric}"


def _routes(trial: Trial, result: TrialResult) -> dict[str, float]:
    """The trial's metric for each way to answer with unmerged experts; none for a failed trial."""
    own = f"{trial.run.metric} "
    return {f"{trial.run.task} {name}": value for name, value in result.metrics.items() if name.startswith(own)}


def _sorted(rows: Sequence[TableRow]) -> list[TableRow]:
    """Sorted by the first coordinate, then the next, each in the order of the grid's values."""
    places = [{label: number for number, label in enumerate(dict.fromkeys(column))} for column in _columns(rows)]
    return sorted(rows, key=lambda row: [place[label] for place, label in zip(places, row.labels, strict=True)])


def _columns(rows: Sequence[TableRow]) -> list[tuple[str, ...]]:
    return list(zip(*(row.labels for row in rows), strict=True))


def _row(labels: tuple[str, ...], entries: Sequence[TableEntry], titles: Sequence[str]) -> TableRow:
    done = [(trial, result) for trial, result in entries if result.failure is None]
    values: dict[str, list[float]] = {title: [] for title in titles}
    for trial, result in done:
        values[_title(trial)].append(result.metrics[trial.run.metric])
        for name, value in _routes(trial, result).items():
            values.setdefault(name, []).append(value)
    values[MEAN] = _means(done, len(titles))
    for trial, result in done:
        for column in (_title(trial), MEAN):
            values.setdefault(rows_of(column), []).append(result.rows or 0)
    values[PARAMETERS] = [trial.parameters for trial, _ in entries]
    values[EPOCH_SECONDS] = [result.seconds_per_epoch for _, result in done if result.seconds_per_epoch is not None]
    values[SECONDS] = [result.seconds for _, result in done if result.seconds is not None]
    values[MEMORY] = [_memory(result) / _MIB for _, result in done]
    cells = {name: stat for name, found in values.items() if (stat := Stat.create(found)) is not None}
    return TableRow(labels, cells, len(entries) - len(done))


def _memory(result: TrialResult) -> int:
    return result.device_memory_bytes or result.memory_bytes or 0


def _means(entries: Sequence[TableEntry], num_tasks: int) -> list[float]:
    """Means over tasks, one for each point of the grid that has all tasks; none if a lower metric is better."""
    if num_tasks < 2 or any(trial.run.metric in LOWER_IS_BETTER for trial, _ in entries):
        return []
    points: dict[tuple[tuple[str, str], ...], list[float]] = {}
    for trial, result in entries:
        point = tuple(sorted((name, value) for name, value in coordinates(trial).items() if name != "task"))
        points.setdefault(point, []).append(result.metrics[trial.run.metric])
    return [statistics.fmean(values) for values in points.values() if len(values) == num_tasks]


def to_rich(table: SweepTable) -> RichTable:
    shown = RichTable()
    for number, name in enumerate(_header(table)):
        shown.add_column(Text(name), justify="left" if number < len(table.by) else "right")
    for row in table.rows:
        shown.add_row(*(Text(cell) for cell in _cells(table, row)))
    return shown


def to_markdown(table: SweepTable) -> str:
    header = _header(table)
    rule = ["---"] * len(table.by) + ["--:"] * (len(header) - len(table.by))
    lines = [header, rule, *(_cells(table, row) for row in table.rows)]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def to_csv(table: SweepTable) -> str:
    """Every number in a separate column, not rounded."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    parts = [f"{name} {part}" for name in table.columns for part in ("mean", "sd", "count")]
    writer.writerow([*table.by, *parts, _FAILED])
    for row in table.rows:
        stats = [row.cells.get(name) for name in table.columns]
        numbers = [number for stat in stats for number in ((stat.mean, stat.sd, stat.count) if stat else ("", "", 0))]
        writer.writerow([*row.labels, *numbers, row.failed])
    return file.getvalue()


def to_json(table: SweepTable) -> list[dict[str, Any]]:
    """One object per row."""
    return [
        {
            "group": dict(zip(table.by, row.labels, strict=True)),
            "values": {name: asdict(stat) for name, stat in row.cells.items()},
            _FAILED: row.failed,
        }
        for row in table.rows
    ]


def _header(table: SweepTable) -> list[str]:
    return [*table.by, *table.columns, *([_FAILED] if table.has_failures else [])]


def _cells(table: SweepTable, row: TableRow) -> list[str]:
    stats = [_shown(name, row.cells.get(name)) for name in table.columns]
    return [*row.labels, *stats, *([str(row.failed)] if table.has_failures else [])]


def _shown(name: str, stat: Stat | None) -> str:
    if stat is None:
        return ""
    mean = f"{stat.mean:,.{_DIGITS.get(name, _METRIC_DIGITS)}f}"
    if name in _DIGITS or stat.sd is None:  # costs show only the mean
        return mean
    return f"{mean} ± {stat.sd:.{_METRIC_DIGITS}f}"
