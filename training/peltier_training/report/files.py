"""The files that a run leaves: each appears whole or not at all."""

from pathlib import Path

from peltier_adapters import durable

from peltier_training.errors import TrainingError
from peltier_training.report.page import render
from peltier_training.report.report import Report


def report_paths(artifact: Path) -> tuple[Path, Path]:
    """Where the report of an artifact lies, as JSON and as HTML: NAME.report.json beside NAME.safetensors."""
    name = artifact.name.removesuffix(".safetensors")
    return artifact.with_name(f"{name}.report.json"), artifact.with_name(f"{name}.report.html")


def write_report(artifact: Path, report: Report) -> None:
    """Both files of a report; a `TrainingError` if one cannot be written."""
    as_json, as_html = report_paths(artifact)
    write_file(as_json, report.model_dump_json(indent=1).encode())
    write_file(as_html, render(report).encode())


def write_file(path: Path, data: bytes) -> None:
    """Put `data` at `path` in one step; a `TrainingError` if that cannot be."""
    try:
        durable.write_file(path, data)
    except OSError as error:
        raise TrainingError(f"output {path} cannot be written: {error.strerror}") from None
