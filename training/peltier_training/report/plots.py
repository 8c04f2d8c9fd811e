"""The report's plots, each an inline SVG in the colours of the page, light or dark, with a description
for screen readers."""

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from peltier_training.report.answers import Confusion, Residuals
from peltier_training.report.merging import Merging
from peltier_training.report.report import CurvePoint

STYLE: Mapping[str, Any] = {
    "svg.hashsalt": "peltier",  # makes the bytes reproducible
    "font.size": 9,
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.formatter.useoffset": False,
    "grid.linewidth": 0.5,
}
# matplotlib does not support CSS variables: figures use stand-in colours, which are then replaced by the page's.
INK, FAINT, MAIN, SECOND = "#010203", "#010204", "#010205", "#010206"
_PAGE_COLOURS = {INK: "currentColor", FAINT: "var(--line)", MAIN: "var(--main)", SECOND: "var(--second)"}
_STYLE = {
    **STYLE,
    "svg.fonttype": "none",  # keep texts as text in the page's font
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "lines.linewidth": 1.6,
}
_NO_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}
_SMALL = (3.6, 2.1)
_MAX_MARKED_POINTS = 25  # fewer points than this are marked
# From transparent to one hue, for light and dark pages. The norm emphasises small shares, because mistakes are few.
_HEAT = LinearSegmentedColormap.from_list("heat", ["#3f82dd00", "#3f82ddff"])
_HEAT_EXPONENT = 0.5


class Drawing:
    """One plot of `width` by `height` inches. It must not contain texts of users, which are not escaped."""

    def __init__(self, width: float, height: float) -> None:
        with mpl.rc_context(_STYLE):  # type: ignore[arg-type]
            self._figure = Figure(figsize=(width, height), layout="constrained", facecolor="none")
            FigureCanvasSVG(self._figure)
            self.plot: Axes = self._figure.add_subplot()
        self.plot.set_facecolor("none")

    def svg(self, name: str, spoken: str) -> str:
        """One `<svg>` element; `name` makes its ids unique on the page, `spoken` is for screen readers."""
        with mpl.rc_context(_STYLE):  # type: ignore[arg-type]
            text = to_svg(self._figure)
        text = text[text.index("<svg") :]
        text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text)  # not needed in HTML
        prefix = re.sub(r"\W+", "-", name)
        text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", text)
        for stand_in, colour in _PAGE_COLOURS.items():
            text = text.replace(stand_in, colour)
        return text.replace("<svg", f'<svg role="img" aria-label="{spoken}"', 1)


def to_svg(figure: Figure) -> str:
    """An SVG document without metadata. Call it in the `rc_context` in which the figure was drawn."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata=_NO_METADATA)
    return buffer.getvalue()


def curve_svg(name: str, points: Sequence[CurvePoint], best_step: int | None) -> str:
    """A curve over epochs; the point of `best_step` has a mark."""
    epochs, values = [point.epoch for point in points], [point.value for point in points]
    best = [point for point in points if point.step == best_step]
    drawing = Drawing(*_SMALL)
    plot = drawing.plot
    plot.plot(epochs, values, color=MAIN, marker="o" if len(points) < _MAX_MARKED_POINTS else "", markersize=3)
    plot.scatter([point.epoch for point in best], [point.value for point in best], s=60, color=SECOND, zorder=3)
    plot.set_xlabel("epoch")
    plot.set_xlim(left=0)
    plot.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    plot.yaxis.set_major_locator(MaxNLocator(5))
    kept = f", {best[0].value:.4g} at the epoch that was kept" if best else ""
    return drawing.svg(
        name, f"{name} from {values[0]:.4g} at epoch {epochs[0]:.3g} to {values[-1]:.4g} at {epochs[-1]:.3g}{kept}"
    )


def merging_svg(merging: Merging, metric: str) -> str:
    """A line for each way to answer: a dot for each of its adapters, and their mean with its standard deviation."""
    drawing = Drawing(4.2, 0.7 + 0.35 * len(merging.ways))
    plot = drawing.plot
    for line, way in enumerate(merging.ways):
        spread = way.metrics[metric]
        plot.scatter(spread.values, [line] * len(spread.values), s=20, color=MAIN, alpha=0.7, linewidths=0, zorder=3)
        plot.errorbar(spread.mean, line, xerr=spread.sd, fmt="D", markersize=5, color=SECOND, capsize=3)
    plot.set_yticks(range(len(merging.ways)), [way.name for way in merging.ways])
    plot.set_ylim(len(merging.ways) - 0.5, -0.5)
    plot.set_xlabel(metric)
    plot.xaxis.set_major_locator(MaxNLocator(6))
    spoken = ", ".join(f"{way.name} {way.metrics[metric].mean:.4g}" for way in merging.ways)
    return drawing.svg("merging", f"Mean {metric}: {spoken}")


def confusion_svg(confusion: Confusion) -> str:
    """The shares of each label's rows as a heat map, for too many labels for a table."""
    counts = np.array(confusion.matrix, dtype=float)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    drawing = Drawing(5.2, 4.9)
    plot = drawing.plot
    plot.imshow(
        shares, cmap=_HEAT, norm=PowerNorm(_HEAT_EXPONENT, vmin=0, vmax=1), interpolation="none", aspect="equal"
    )
    plot.grid(visible=False)
    plot.set_xlabel("answer (position of the label)")
    plot.set_ylabel("label")
    right, rows = int(np.trace(counts)), int(counts.sum())
    return drawing.svg(
        "confusion matrix", f"Confusion matrix of {len(counts)} labels, {right} of {rows} rows on its diagonal"
    )


def scatter_svg(residuals: Residuals) -> str:
    gold, found = np.array(residuals.gold), np.array(residuals.found)
    drawing = Drawing(*_SMALL)
    plot = drawing.plot
    ends = [min(gold.min(), found.min()), max(gold.max(), found.max())]
    plot.plot(ends, ends, color=SECOND, linewidth=1)
    plot.scatter(gold, found, s=9, color=MAIN, alpha=0.5, linewidths=0)
    plot.set_xlabel("label")
    plot.set_ylabel("answer")
    return drawing.svg("answers by labels", f"{len(gold)} answers against their labels")


def histogram_svg(residuals: Residuals) -> str:
    apart = np.array(residuals.found) - np.array(residuals.gold)
    drawing = Drawing(*_SMALL)
    plot = drawing.plot
    plot.hist(apart, bins="auto" if np.ptp(apart) > 0 else 1, color=MAIN)
    plot.axvline(0, color=SECOND, linewidth=1)
    plot.set_xlabel("answer minus label")
    plot.set_ylabel("rows")
    spoken = f"Answers minus labels, mean {residuals.mean:.3g}, standard deviation {residuals.sd:.3g}"
    return drawing.svg("answers minus labels", spoken)
