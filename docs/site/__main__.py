"""`python -m docs.site` writes the documentation site of the working tree and of each release."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from docs.site.sources import SETTINGS, BrokenLink, copy_sources, navigation
from docs.site.versions import extract, released, working_version, write_index

ROOT = Path(__file__).parents[2]


def build(tree: Path, target: Path) -> None:
    """Writes the site of one tree; raises `BrokenLink`, or `CalledProcessError` for another warning."""
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        build_pages(tree, work / "pages")
        copy_sources(tree, work / "pages")
        shutil.copy(tree / SETTINGS, work)
        # The formulas of every version are drawn by this version of the builder.
        command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(work / SETTINGS.name)]
        subprocess.run(command, check=True, cwd=ROOT)  # noqa: S603
        shutil.rmtree(target, ignore_errors=True)
        shutil.move(work / "html", target)


def build_pages(tree: Path, target: Path) -> None:
    """Writes the pages of the navigation that the tree does not have, by the code of that tree."""
    if all((tree / page).is_file() for page in navigation(tree)):
        return
    roots = {package.parent for package in tree.glob("*/peltier_*")}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [tree, *sorted(roots)]))}
    command = [sys.executable, "-m", "docs.generator", str(target.absolute())]
    subprocess.run(command, check=True, cwd=tree, env=environment)  # noqa: S603


def build_all(root: Path, site: Path) -> None:
    """The site of every version below `site`, and what joins them."""
    releases = released(root)
    working = working_version(root, releases)
    site.mkdir(parents=True, exist_ok=True)
    build(root, site / working)
    for version in releases:
        with tempfile.TemporaryDirectory() as tree:
            extract(root, version, Path(tree))
            build(Path(tree), site / version)
    write_index(site, working, releases)


def main() -> None:
    """Builds, and says where."""
    parser = argparse.ArgumentParser(prog="python -m docs.site", description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="a clone whose versions are built")
    parser.add_argument("--output", type=Path, default=ROOT / "site", help="the folder of the site")
    arguments = parser.parse_args()
    try:
        build_all(arguments.root, arguments.output)
    except BrokenLink as error:
        sys.exit(f"error: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"error: {' '.join(error.cmd[1:4])} failed; its messages are above")
    print(f"wrote {arguments.output}; show it with: python3 -m http.server --directory {arguments.output}")


if __name__ == "__main__":
    main()
