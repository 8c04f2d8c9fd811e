"""The sources of a site: the pages of its navigation, and every file that they link to, at their paths in the tree."""

import os
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# The settings of the site, of whichever version.
SETTINGS = Path("docs/site/zensical.toml")
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
_CODE = re.compile(r"^( *)```.*?^\1```", flags=re.DOTALL | re.MULTILINE)


class BrokenLink(Exception):
    """A page, or a file that a page links to, is not in the tree."""


def copy_sources(root: Path, target: Path) -> None:
    """Copies what the site of the tree `root` is made from; raises `BrokenLink`."""
    for file in sorted(_linked(root, navigation(root))):
        copy = target / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / file, copy)
    shutil.copy(root / SETTINGS.with_name("theme.css"), target)


def navigation(root: Path) -> list[Path]:
    """The pages of the navigation, in its order."""
    return [Path(page) for page in _pages(tomllib.loads((root / SETTINGS).read_text())["project"]["nav"])]


def _pages(entries: Any) -> Iterator[str]:
    if isinstance(entries, str):
        yield entries
    else:
        for entry in entries.values() if isinstance(entries, dict) else entries:
            yield from _pages(entry)


def _linked(root: Path, pages: list[Path]) -> set[Path]:
    """The pages, and the files that they link to in any number of steps."""
    found = set[Path]()
    ahead = [(SETTINGS, page) for page in pages]
    while ahead:
        source, file = ahead.pop()
        if not (root / file).is_file():
            raise BrokenLink(f"{source} links to {file}, which is not a file of the tree")
        if file not in found and file.suffix == ".md":
            ahead += [(file, target) for target in _targets(root, file)]
        found.add(file)
    return found


def _targets(root: Path, page: Path) -> list[Path]:
    """The paths in the tree of what a page links to."""
    links = _LINK.findall(_CODE.sub("", (root / page).read_text()))
    return [Path(os.path.normpath(page.parent / link)) for link in links]
