"""The report as one HTML file without external resources."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup
from peltier_client.protocol.reports import MAX_REPORT_BYTES

from peltier_training.delivery import write_file
from peltier_training.report import plots
from peltier_training.report.answers import MAX_MISTAKES, Confusion, LabelScores
from peltier_training.report.report import Curves, Report

_MAX_TABLE_LABELS = 20  # of a confusion matrix that is shown as a table
_MAX_CONFUSIONS = 15
_MAX_POINTS = 1_000  # of a curve of a report that is too large
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")

# Texts of users are escaped; our own drawings are marked as safe.
_pages = jinja2.Environment(
    loader=jinja2.PackageLoader("peltier_training.report", "."),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
# Compiled here, which takes a second of CPU, a worker compiles it once for all its trainings.
_page = _pages.get_template("page.html")


def render(report: Report) -> str:
    confusion, residuals, curves = report.confusion, report.residuals, report.curves
    wide = confusion is not None and len(confusion.labels) > _MAX_TABLE_LABELS
    return _page.render(
        report=report,
        curves=_pictures(curves),
        single=all(len(points) == 1 for points in curves.validation.values()),
        single_training=[(name, points[0]) for name, points in curves.training.items() if len(points) == 1],
        weakest_first=weakest_first(report.label_scores or ()),
        max_mistakes=MAX_MISTAKES,
        ran=_ran(report),
        settings=_settings(report),
        residuals=[_own(plots.scatter_svg(residuals)), _own(plots.histogram_svg(residuals))] if residuals else [],
        confusion=_own(plots.confusion_svg(confusion)) if confusion is not None and wide else None,
        merging=_own(plots.merging_svg(report.merging, report.metric)) if report.merging else None,
        confusions=most_confused(confusion) if confusion else (),
        bytes=_bytes,
        seconds=_seconds,
    )


def most_confused(confusion: Confusion) -> Sequence[tuple[str, str, int]]:
    """Label, wrong answer and rows, the most frequent first."""
    pairs = [
        (confusion.labels[i], confusion.labels[j], count)
        for i, row in enumerate(confusion.matrix)
        for j, count in enumerate(row)
        if i != j and count
    ]
    return sorted(pairs, key=lambda pair: -pair[2])[:_MAX_CONFUSIONS]


def weakest_first(scores: Sequence[LabelScores]) -> list[LabelScores]:
    """`scores` by ascending F1, those without F1 last."""
    return sorted(scores, key=lambda score: (score.f1 is None, score.f1 or 0.0))


def _ran(report: Report) -> dict[str, Any]:
    values = report.resolved.model_dump() if report.resolved else {}
    shown = {name.replace("_", " "): value for name, value in values.items() if value is not None}
    return {name: f"{value:g}" if isinstance(value, float) else value for name, value in shown.items()}


def _settings(report: Report) -> dict[str, Any]:
    """The preset's settings; an automatic pooling is shown with its resolved value."""
    settings: dict[str, Any] = dict(report.training.hyperparameters.get("settings", {}))
    if report.resolved and settings.get("pooling") == "auto":
        settings["pooling"] = f"auto: {report.resolved.pooling}"
    return settings


def _pictures(curves: Curves) -> list[tuple[str, Markup]]:
    """A plot of each curve with more than one point."""
    training = [(f"training {name.replace('_', ' ')}", points, None) for name, points in curves.training.items()]
    validation = [(f"validation {name}", points, curves.best_step) for name, points in curves.validation.items()]
    curves_of = [*training, *validation]
    return [(name, _own(plots.curve_svg(name, points, best))) for name, points, best in curves_of if len(points) > 1]


def _own(svg: str) -> Markup:
    return Markup(svg)  # noqa: S704 - drawn here


def _bytes(number: float) -> str:
    unit = 0
    while number >= 1024 and unit < len(_UNITS) - 1:
        number, unit = number / 1024, unit + 1
    return f"{number:.3g} {_UNITS[unit]}" if number < 1000 else f"{number:.0f} {_UNITS[unit]}"


def _seconds(number: float) -> str:
    if number < 60:
        return f"{number:.3g} s"
    minutes, seconds = divmod(round(number), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def report_paths(artifact: Path) -> tuple[Path, Path]:
    """The report's paths as JSON and HTML: NAME.report.json and NAME.report.html beside NAME.safetensors."""
    name = artifact.name.removesuffix(".safetensors")
    return artifact.with_name(f"{name}.report.json"), artifact.with_name(f"{name}.report.html")


def write_report(artifact: Path, report: Report) -> None:
    """Write both files of a report. Raises a `TrainingError` if one cannot be written."""
    as_json, as_html = report_paths(artifact)
    write_file(as_json, to_json(report))
    write_file(as_html, render(report).encode())


def to_json(report: Report) -> bytes:
    """The report in JSON, as a server takes it: if it is too large, with fewer points of its curves and without the
    sections that have an entry for each label or long texts, as far as that is needed."""
    changes: Sequence[dict[str, Any]] = [{}, {"confusion": None}, {"curves": report.curves.thinned(_MAX_POINTS)}]
    for change in (*changes, *({name: None} for name in ("samples", "mistakes", "label_counts", "label_scores"))):
        report = report.model_copy(update=change)
        if len(data := report.model_dump_json().encode()) <= MAX_REPORT_BYTES:
            break
    return data
