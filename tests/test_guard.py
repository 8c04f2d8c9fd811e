"""The guard of the benchmarks: which figures it has, and when it fails."""

import json
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
FIGURES = {"fast": [2.0, 9.0, 0.1], "lost": [0.8, 0.9, 0.89], "new": [0.1, 0.1, 0.1]}


@pytest.fixture(scope="module")
def committed() -> dict[str, Any]:
    """The module that reads and judges committed figures."""
    return runpy.run_path(str(BENCHMARKS / "common" / "committed.py"))


def test_a_figure_has_lost_when_its_median_is_a_tenth_lower(committed: dict[str, Any]) -> None:
    """Single rounds do not matter, nor does a figure that nobody has committed."""
    assert committed["losses"](FIGURES, {"fast": 2.2, "lost": 1.0}) == ["lost"]


def test_figures_are_those_of_one_level_of_one_kind_of_processor(committed: dict[str, Any], tmp_path: Path) -> None:
    """Recording a level keeps the other levels and kinds, and what was never recorded has no figures."""
    path = Path(shutil.copy(BENCHMARKS / "guard.json", tmp_path))
    before = json.loads(path.read_text())
    for level in ("avx2", "avx512"):
        committed["record_figures"](path, "a kind", "its name", level, FIGURES)
    figures = {"fast": 2.0, "lost": 0.89, "new": 0.1}
    assert committed["read_figures"](path, "a kind", "avx512") == figures
    assert committed["read_figures"](path, "a kind", "amx") == {}
    assert committed["read_figures"](path, "another", "avx2") == {}
    recorded = {"name": "its name", "levels": {"avx2": figures, "avx512": figures}}
    assert json.loads(path.read_text()) == {**before, "a kind": recorded}


def test_this_processor_is_one_kind(committed: dict[str, Any]) -> None:
    """Its kind and its name, both the same at each call."""
    kind, name = committed["processor"]()
    assert kind
    assert name
    assert committed["processor"]() == (kind, name)


def test_every_level_has_the_same_ten_figures() -> None:
    """So a figure that was renamed or removed is not kept for one of them."""
    kinds = json.loads((BENCHMARKS / "guard.json").read_text()).values()
    figures = [set(level) for kind in kinds for level in kind["levels"].values()]
    assert figures
    assert all(one == figures[0] and len(one) == 10 for one in figures)
