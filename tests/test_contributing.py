"""The walks of CONTRIBUTING.md work: the tests follow each in a copy of the sources and run its commands."""

import faulthandler
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
PACKAGES = ("backbone", "adapters_store", "server", "training", "client")
WALKS = dict(re.findall(r"^## (Adding (?!a limit)[^\n]*)\n(.*?)(?=^## )", PAGE, re.DOTALL | re.MULTILINE))
# The file that a block is for, its language and its text, all indented as part of a numbered step.
BLOCK = re.compile(r"(?:^   In `(\S+)`:\n\n)?^   ```(python|diff|sh)\n(.*?)^   ```$", re.DOTALL | re.MULTILINE)


def apply(diff: str, path: Path) -> None:
    """Changes the one place of the file that has the lines of `diff` without those that it adds."""
    lines = diff.splitlines()
    before = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("+"))
    after = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("-"))
    text = path.read_text()
    assert text.count(before) == 1, f"{path} has {text.count(before)} times:\n{before}"
    path.write_text(text.replace(before, after))


def test_the_samples_are_quoted_from_the_code() -> None:
    """Each block outside of the walks that names a file is in it, word for word."""
    samples = re.findall(r"^In `(\S+)`:\n\n```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert len(samples) == 3
    assert [name for name, text in samples if text not in (ROOT / name).read_text()] == []


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The sources and their tests, to be changed."""
    for name in (*PACKAGES, "tests", "benchmarks", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    return tmp_path


def follow(title: str, copy: Path) -> str:
    """Applies the walk to `copy`: Python is a new file, a diff a change. Returns its shell commands."""
    blocks = BLOCK.findall(WALKS[title])
    assert len(blocks) == WALKS[title].count("```") / 2
    commands = ""
    for name, kind, indented in blocks:
        text = re.sub(r"(?m)^   ", "", indented)
        if kind == "sh":
            commands += text
        elif kind == "diff":
            apply(text, copy / name)
        else:
            (copy / name).write_text(text)
        if name.endswith(".py"):
            compile((copy / name).read_text(), name, "exec")
    return commands


@pytest.mark.parametrize("title", WALKS)
def test_a_walk_fits_the_sources(title: str, tmp_path: Path) -> None:
    """Each of its changes has its place, what comes out is Python, and the tests that it runs at the end are there."""
    for name, _, _ in BLOCK.findall(WALKS[title]):
        if (ROOT / name).parent.exists():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_file():
            shutil.copy(ROOT / name, tmp_path / name)
    files = re.findall(r"tests/\S+\.py", follow(title, tmp_path))
    assert files
    assert [file for file in files if not ((tmp_path / file).exists() or (ROOT / file).exists())] == []


@pytest.mark.slow  # above is what breaks when sources change; what the walks add is tested where it lives
@pytest.mark.parametrize("title", WALKS)
def test_a_walk_works_as_written(title: str, copy: Path) -> None:
    """Its commands succeed in the changed sources."""
    commands = follow(title, copy)
    path = os.pathsep.join(str(copy / name) for name in (*PACKAGES, "."))
    env = {**os.environ, "PYTHONPATH": path, "PYTEST_ADDOPTS": "-p no:cacheprovider"}
    # Beside other tests it may take longer than a test that hangs may.
    faulthandler.cancel_dump_traceback_later()
    shell = ["/bin/bash", "-eu", "-c", commands]
    done = subprocess.run(shell, cwd=copy, capture_output=True, text=True, timeout=1200, env=env)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
