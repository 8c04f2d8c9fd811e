"""What `make test-changed` chooses."""

import os
import re
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.causes import CAUSES, NIGHTLY
from tests.changed import choose, choose_base, commands

ROOT = Path(__file__).parent.parent
FOUR_HOURS_AGO = {"GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z"}


def git(*arguments: str, **environment: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main", *arguments]
    return subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An old commit and a new one in the working directory."""
    monkeypatch.chdir(tmp_path)
    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "-m", "old", **FOUR_HOURS_AGO)
    git("commit", "--quiet", "--allow-empty", "-m", "new")
    return tmp_path


def test_every_place_of_the_table_exists() -> None:
    """Each pattern matches a path, and each test file and target of make is there."""
    tracked = git("-C", str(ROOT), "ls-files").splitlines()
    patterns = [pattern for cause in CAUSES for pattern in cause.paths]
    assert [one for one in patterns if not any(fnmatchcase(path, one) for path in tracked)] == []
    places = [*NIGHTLY, *(place for cause in CAUSES for place in cause.tests + cause.also)]
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


def test_the_base_is_the_upstream_branch(repository: Path) -> None:
    """Where the two part; if HEAD is part of upstream, the commits of the last four hours count."""
    git("branch", "upstream", "HEAD~1")
    git("branch", "--set-upstream-to=upstream", "--quiet")
    assert choose_base("") == (git("rev-parse", "upstream"), "the merge base with the upstream branch")
    git("branch", "--force", "upstream", "HEAD")
    assert choose_base("") == (git("rev-parse", "HEAD~1"), "the newest commit of four hours ago or earlier")


def test_without_upstream_the_last_four_hours_count(repository: Path) -> None:
    """A named base counts before anything else; without an old commit everything is new."""
    assert choose_base("")[0] == git("rev-parse", "HEAD~1")
    assert choose_base("HEAD") == (git("rev-parse", "HEAD"), "BASE")
    git("checkout", "--quiet", "--orphan", "young")
    git("commit", "--quiet", "--allow-empty", "-m", "young")
    assert choose_base("")[1] == "no commit is four hours old, so everything is new"
    git("diff", "--name-only", choose_base("")[0])


def test_a_base_that_is_no_commit_is_one_sentence(repository: Path) -> None:
    """With git's own words."""
    with pytest.raises(SystemExit, match=r"^error: git rev-parse --verify maim.*: fatal: Needed a single revision$"):
        choose_base("maim")
