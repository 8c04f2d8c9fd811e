"""The sources of a site: the pages of its navigation, and every file that they link to, at their paths in the tree."""

import os
import re
import shutil
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

# The settings of the site, of whichever version.
SETTINGS = Path("docs/site/zensical.toml")
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
# Where nothing is built, a link leads to a section about the page. `reference/README.md#routes` stands for `routes.md`.
_REFERENCE = re.compile(r"\]\(([^)#:]*)reference/README\.md#(\w+)\)")
_CODE = re.compile(r"^( *)```.*?^\1```", flags=re.DOTALL | re.MULTILINE)


class BrokenLink(Exception):
    """A page, or a file that a page links to, is not in the tree."""


def copy_sources(root: Path, target: Path) -> None:
    """Copies what the site of the tree `root` is made from. Built files are in `target` before. Raises `BrokenLink`."""
    for file, source in _linked((target, root), navigation(root)).items():
        copy = target / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".md":
            copy.write_text(_page(source))
        elif source != copy:
            shutil.copy(source, copy)
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


def _find(roots: Sequence[Path], file: Path) -> Path | None:
    """The file in the first of the trees that has it."""
    return next((root / file for root in roots if (root / file).is_file()), None)


def _linked(roots: Sequence[Path], pages: Sequence[Path]) -> dict[Path, Path]:
    """The pages, and the files that they link to in any number of steps, with the place of each."""
    found = dict[Path, Path]()
    ahead = [(SETTINGS, page) for page in pages]
    while ahead:
        source, file = ahead.pop()
        if (place := _find(roots, file)) is None:
            raise BrokenLink(f"{source} links to {file}, which is not a file of the tree")
        if file not in found and file.suffix == ".md":
            ahead += [(file, target) for target in _targets(file, _page(place))]
        found[file] = place
    return found


def _page(path: Path) -> str:
    """The text of a page, with links to the built pages of the reference."""
    return _REFERENCE.sub(r"](\1reference/\2.md)", path.read_text())


def _targets(page: Path, text: str) -> list[Path]:
    """The paths in the tree of what a page links to."""
    links = _LINK.findall(_CODE.sub("", text))
    return [Path(os.path.normpath(page.parent / link)) for link in links]
