"""What `make test-changed` chooses."""

import os
import re
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

from tests.causes import CAUSES, ONLY_IN_ALL
from tests.changed import choose, commands

ROOT = Path(__file__).parent.parent


def test_every_place_of_the_table_exists() -> None:
    """Each pattern matches a path, and each test file and target of make is there."""
    folders = [path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")]
    paths = [
        *ROOT.iterdir(),
        *(path for folder in folders for path in folder.rglob("*") if "node_modules" not in path.parts),
    ]
    names = [path.relative_to(ROOT).as_posix() for path in paths if path.is_file()]
    patterns = [pattern for cause in CAUSES for pattern in cause.paths]
    assert [one for one in patterns if not any(fnmatchcase(name, one) for name in names)] == []
    places = [*ONLY_IN_ALL, *(place for cause in CAUSES for place in cause.tests + cause.also)]
    assert [place for place in places if not (ROOT / place).exists()] == []
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert {target for cause in CAUSES for target in cause.targets} <= set(targets)


def test_a_changed_path_chooses_its_causes() -> None:
    """A source, by the patterns; a test file that the gate leaves out, by itself; and nothing else."""
    kernel, page = "backbone/peltier_backbone/native/stack.c", "README.md"
    emulated = "tests/backbone/native/test_aarch64.py"
    chosen = choose([kernel, page, "training/peltier_training/train.py"])
    assert {cause.name: paths for cause, paths in chosen.items()} == {"kernels": [kernel], "documents": [page]}
    assert [cause.name for cause in choose([emulated])] == ["kernels"]


def test_files_of_several_causes_run_once() -> None:
    """In one run of pytest; the tests of a mark in a run of their own, and then the targets of make."""
    runs = commands([cause for cause in CAUSES if cause.name in ("registry", "packages")], ["-x"])
    whole, marked, *targets = runs
    assert {"not alone", "-x", "tests/test_dependencies.py"} <= {*whole}
    assert {"postgres", "-x", "tests/adapters_store/store"} <= {*marked}
    assert targets == [["make", "check-floors"], ["make", "check-client"]]


def test_property_tests_draw_the_same_in_the_gate_and_others_elsewhere() -> None:
    """Also where Hypothesis has found that it runs in CI, and has changed its own settings."""
    code = (
        "from hypothesis import settings; import tests.support.tiers\n"
        "print([settings.get_profile(tier).derandomize for tier in ('gate', 'all')])"
    )
    environment = os.environ | {"CI": "true"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.stdout == "[True, False]\n", done.stderr
