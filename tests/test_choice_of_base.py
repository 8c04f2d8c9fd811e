"""The commit with which `make test-changed` compares."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.changed import choose_base

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
