"""Figures that are committed for each kind of processor and instruction level, and which of them a run has lost."""

import json
import platform
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MAX_LOSS = 0.1

# By the name of the figure; higher is better.
Figures = Mapping[str, float]
Ratios = dict[str, list[float]]


def read_figures(path: Path, kind: str, level: str) -> Figures:
    """The committed figures of this kind of processor at this level; empty for unknown ones."""
    figures: Figures = _read(path).get(kind, {}).get("levels", {}).get(level, {})
    return figures


def record_figures(path: Path, kind: str, name: str, level: str, found: Mapping[str, Sequence[float]]) -> None:
    """Writes the medians as the figures of this kind of processor, which people call `name`, at this level."""
    committed = _read(path)
    levels = committed.get(kind, {}).get("levels", {})
    levels[level] = {one: round(statistics.median(ratios), 3) for one, ratios in found.items()}
    path.write_text(json.dumps(committed | {kind: {"name": name, "levels": levels}}, indent=2) + "\n")


def losses(found: Mapping[str, Sequence[float]], committed: Figures) -> list[str]:
    """The figures whose median is more than 10 % below the committed one."""
    return [
        name
        for name, ratios in found.items()
        if name in committed and statistics.median(ratios) < (1 - MAX_LOSS) * committed[name]
    ]


def processor() -> tuple[str, str]:
    """The kind of this machine's processor, and its name for people."""
    fields: dict[str, str] = {}
    with Path("/proc/cpuinfo").open() as file:
        for line in file:
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    numbers = [fields.get(key, "?") for key in ("vendor_id", "cpu family", "model")]
    if "?" in numbers:
        numbers = [platform.machine(), fields.get("CPU implementer", "?"), fields.get("CPU part", "?")]
    return " ".join(numbers), fields.get("model name", platform.machine())


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found
