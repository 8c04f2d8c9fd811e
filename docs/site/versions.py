"""The versions of the site: the working tree, and every release that a tag marks."""

import io
import json
import subprocess
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

from packaging.version import Version

from docs.site.sources import SETTINGS

# The working tree, once its version has been released.
NEXT = "next"


def released(root: Path) -> list[str]:
    """The versions of the tags `v…` whose tree has a site, newest first."""
    names = [tag.removeprefix("v") for tag in _git(root, "tag", "--list", "v*").decode().split()]
    return sorted((name for name in names if _has_site(root, f"v{name}")), key=Version, reverse=True)


def working_version(root: Path, releases: Sequence[str]) -> str:
    """What the site of the working tree is called: its version of pyproject.toml until that is released."""
    version = str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])
    return NEXT if version in releases else version


def extract(root: Path, version: str, target: Path) -> None:
    """Writes the tree of a release below `target`."""
    archive = _git(root, "archive", "--format=zip", f"v{version}")
    with zipfile.ZipFile(io.BytesIO(archive)) as files:
        files.extractall(target)


def write_index(site: Path, working: str, releases: Sequence[str]) -> None:
    """`versions.json`, from which every page offers the other versions, and a first page that leads to the newest."""
    newest = releases[0] if releases else working
    names = [working, *releases]
    entries = [{"version": n, "title": n, "aliases": ["latest"] if n == newest else []} for n in names]
    (site / "versions.json").write_text(json.dumps(entries))
    (site / "index.html").write_text(
        f'<!doctype html>\n<meta charset="utf-8">\n<title>Peltier</title>\n<link rel="icon" href="data:,">\n'
        f'<meta http-equiv="refresh" content="0; url={newest}/">\n<a href="{newest}/">Peltier {newest}</a>\n'
    )


def _has_site(root: Path, tag: str) -> bool:
    return bool(_git(root, "ls-tree", "--name-only", tag, str(SETTINGS)))


def _git(root: Path, *arguments: str) -> bytes:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, check=True, capture_output=True).stdout  # noqa: S603
