"""How large the packages are: each has a ceiling of lines and of files, its core and its extensions apart.

A change that adds raises the ceilings of the package that it grows, and its message says to what and why. One that
removes lowers them: lines to the next hundred.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Part:
    """Python files: those below `folder` without those below `extensions`, or these alone."""

    folder: str
    max_lines: int
    max_files: int
    extensions: tuple[str, ...] = ()
    is_core: bool = True

    def files(self) -> set[Path]:
        """Without generated ones."""
        whole = _files(ROOT / self.folder)
        apart = {file for path in self.extensions for file in _files(ROOT / self.folder / path)}
        return whole - apart if self.is_core else apart


def _files(place: Path) -> set[Path]:
    return {place} if place.is_file() else {file for file in place.rglob("*.py") if not file.stem.endswith("_pb2")}


# What can be left out of each package without a change of its core.
_OF_THE_SERVER = ("extensions",)
_OF_THE_STORE = ("registry/extensions",)
_OF_THE_ADAPTERS = ("gpu", "importers/extensions")
_OF_TRAINING = ("baselines", "executor", "notebook.py", "on_server.py", "report", "service", "sweep")
_OF_THE_CLIENT = (
    "asynchronous/files.py", "asynchronous/rollouts.py", "asynchronous/trainings.py", "bulk/comparison.py",
    "commands/batches.py", "commands/compare.py", "commands/doctor.py", "commands/rollouts.py", "commands/top.py",
    "commands/training_lines.py", "commands/trainings.py", "exchange/training_events.py", "monitor",
    "protocol/batches.py", "protocol/comparison.py", "protocol/rollouts.py", "protocol/trainings.py",
    "quality/comparison.py", "resources/files.py", "resources/rollouts.py", "resources/trainings.py",
    "synchronous/files.py", "synchronous/rollouts.py", "synchronous/trainings.py",
)  # fmt: skip

PARTS = {
    "server": Part("server/peltier_server", 16_100, 112, _OF_THE_SERVER),
    "server, extensions": Part("server/peltier_server", 5_400, 65, _OF_THE_SERVER, is_core=False),
    "client": Part("client/peltier_client", 6_800, 60, _OF_THE_CLIENT),
    "client, extensions": Part("client/peltier_client", 3_300, 27, _OF_THE_CLIENT, is_core=False),
    "store": Part("adapters_store/peltier_store", 4_800, 38, _OF_THE_STORE),
    "store, extensions": Part("adapters_store/peltier_store", 2_200, 14, _OF_THE_STORE, is_core=False),
    "adapters": Part("adapters_store/peltier_adapters", 11_200, 103, _OF_THE_ADAPTERS),
    "adapters, extensions": Part("adapters_store/peltier_adapters", 3_600, 26, _OF_THE_ADAPTERS, is_core=False),
    "backbone": Part("backbone/peltier_backbone", 8_100, 83),
    "training": Part("training", 6_400, 44, tuple(f"peltier_training/{one}" for one in _OF_TRAINING)),
    "training, extensions": Part("training/peltier_training", 5_500, 37, _OF_TRAINING, is_core=False),
    "benchmarks": Part("benchmarks", 9_000, 91),
    "tests": Part("tests", 80_200, 539),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_package_is_below_its_ceilings(name: str) -> None:
    """In lines, and in files."""
    part, files = PARTS[name], PARTS[name].files()
    num_lines = sum(len(file.read_bytes().splitlines()) for file in files)
    found = f"{name} has {num_lines} lines in {len(files)} files"
    assert num_lines <= part.max_lines, f"{found}; at most {part.max_lines} lines are allowed"
    assert len(files) <= part.max_files, f"{found}; at most {part.max_files} files are allowed"


def test_what_is_apart_exists() -> None:
    """A file that moves does not move from the extensions to the core in silence."""
    parts = [part for part in PARTS.values() if part.extensions]
    assert [
        f"{part.folder}/{one}" for part in parts for one in part.extensions if not (ROOT / part.folder / one).exists()
    ] == []
