"""Plots of a sweep: each metric by the number of training rows, and by the number of parameters."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from operator import itemgetter

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullLocator

from peltier_training.report.plots import STYLE, to_svg
from peltier_training.sweep.table import (
    MEAN,
    PARAMETERS,
    ROWS,
    TableEntry,
    TableRow,
    create_table,
    default_grouping,
    rows_of,
)

# Okabe and Ito's colours, for colour-blind readers. The first 35 methods have distinct pairs of marker and colour.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v")
_COLUMNS = 3
_STYLE = {
    **STYLE,
    "axes.edgecolor": "#bbbbbb",
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "grid.color": "#dddddd",
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "errorbar.capsize": 2,
}
_AXES = {ROWS: "training rows", PARAMETERS: "parameters"}
_WIDE_RANGE = 30  # above this ratio of largest to smallest, ticks at powers of ten are enough
Lines = Mapping[str, Sequence[TableRow]]


def size_svg(entries: Sequence[TableEntry]) -> str | None:
    """Mean and standard deviation of each metric by training rows; None for fewer than two sizes."""
    done = [entry for entry in entries if entry[1].failure is None]
    if len({trial.size for trial, _ in done}) < 2:
        return None
    return _draw(done, ROWS)


def parameters_svg(entries: Sequence[TableEntry]) -> str | None:
    """Each metric by parameters, at the largest size; None for fewer than two numbers of parameters."""
    done = [entry for entry in entries if entry[1].failure is None]
    largest = max((trial.size or float("inf") for trial, _ in done), default=0.0)
    done = [entry for entry in done if (entry[0].size or float("inf")) == largest]
    if len({trial.parameters for trial, _ in done}) < 2:
        return None
    return _draw(done, PARAMETERS)


def _draw(entries: Sequence[TableEntry], x: str) -> str:
    lines, columns = _lines(entries)
    with mpl.rc_context(_STYLE):  # type: ignore[arg-type]
        num_rows = -(-len(columns) // _COLUMNS)
        width = min(len(columns), _COLUMNS)
        figure = Figure(figsize=(3.1 * width + 1.8, 2.5 * num_rows), layout="constrained", facecolor="white")
        FigureCanvasSVG(figure)
        plots = list(figure.subplots(num_rows, width, squeeze=False).flat)
        for plot, column in zip(plots, columns, strict=False):
            _plot(plot, lines, column, x)
        for plot in plots[len(columns) :]:
            plot.set_axis_off()
        handles, labels = plots[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right upper", frameon=False)
        return to_svg(figure)


def _lines(entries: Sequence[TableEntry]) -> tuple[Lines, Sequence[str]]:
    """The rows of each method, one per size, and the columns that are metrics."""
    names = [name for name in default_grouping(trial for trial, _ in entries) if name != "size"]
    table = create_table(entries, [*names, "size"])
    lines: dict[str, list[TableRow]] = {}
    for row in table.rows:
        pairs = zip(names[1:], row.labels[1:-1], strict=True)
        axes = [f"{name} {value}" for name, value in pairs if value]
        lines.setdefault(", ".join([row.labels[0], *axes]), []).append(row)
    return lines, [name for name in table.columns if name in (*table.tasks, MEAN)]


def _plot(plot: Axes, lines: Lines, column: str, x: str) -> None:
    """All methods on one metric; a method has the same colour and marker in every plot."""
    places: set[float] = set()
    cell = rows_of(column) if x == ROWS else x
    for (label, rows), colour, marker in zip(lines.items(), cycle(_COLOURS), cycle(_MARKERS), strict=False):
        points = sorted(
            ((row.cells[cell].mean, row.cells[column]) for row in rows if column in row.cells), key=itemgetter(0)
        )
        at, means = [place for place, _ in points], [stat.mean for _, stat in points]
        errors = [stat.sd or 0.0 for _, stat in points]
        plot.errorbar(at, means, errors, label=label, color=colour, marker=marker, elinewidth=0.7)
        places |= set(at)
    plot.set_xscale("log")
    plot.xaxis.set_minor_locator(NullLocator())
    if x == ROWS:  # ticks at the sizes rather than at powers of ten
        plot.set_xticks(sorted(places), [f"{place:,.0f}" for place in sorted(places)])
    else:
        wide = max(places, default=1) > _WIDE_RANGE * min(places, default=1)
        plot.xaxis.set_major_locator(LogLocator(subs=(1,) if wide else (1, 2, 5)))
        plot.xaxis.set_major_formatter(EngFormatter(sep=""))
    plot.set_xlabel(_AXES[x])
    plot.set_title(column)
