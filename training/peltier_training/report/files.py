"""The files of a run, written atomically."""

from pathlib import Path

from peltier_adapters import durable

from peltier_training.errors import TrainingError
from peltier_training.report.page import render
from peltier_training.report.report import Report


def report_paths(artifact: Path) -> tuple[Path, Path]:
    """The report's paths as JSON and HTML: NAME.report.json and NAME.report.html beside NAME.safetensors."""
    name = artifact.name.removesuffix(".safetensors")
    return artifact.with_name(f"{name}.report.json"), artifact.with_name(f"{name}.report.html")


def write_report(artifact: Path, report: Report) -> None:
    """Write both files of a report. Raises a `TrainingError` if one cannot be written."""
    as_json, as_html = report_paths(artifact)
    write_file(as_json, report.model_dump_json(indent=1).encode())
    write_file(as_html, render(report).encode())


def write_file(path: Path, data: bytes) -> None:
    """Write `data` to `path` atomically. Raises a `TrainingError` if that fails."""
    try:
        durable.write_file(path, data)
    except OSError as error:
        raise TrainingError(f"output {path} cannot be written: {error.strerror}") from None
