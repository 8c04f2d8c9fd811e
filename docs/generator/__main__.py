"""`python -m docs.generator FOLDER` writes the built pages below FOLDER, at their paths in the repository."""

import argparse
from collections.abc import Callable
from pathlib import Path

from docs.generator.commands_page import commands_page
from docs.generator.errors_page import errors_page
from docs.generator.methods.pages import method_files
from docs.generator.metrics_page import metrics_page
from docs.generator.python_page import python_page
from docs.generator.routes_page import routes_page
from docs.generator.settings_page import settings_page

REFERENCE = Path("docs/reference")
PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands_page,
    "errors.md": errors_page,
    "metrics.md": metrics_page,
    "python.md": python_page,
    "routes.md": routes_page,
    "settings.md": settings_page,
}


def built_files() -> dict[Path, str]:
    """The text of every built file: pages of the reference, and pages and drawings of the methods."""
    return {REFERENCE / name: page() for name, page in PAGES.items()} | method_files()


def write_files(folder: Path) -> None:
    """Writes the built files below `folder`."""
    for path, text in built_files().items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def main() -> None:
    """Writes, and says where."""
    parser = argparse.ArgumentParser(prog="python -m docs.generator", description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    write_files(folder)
    print(f"wrote {folder / REFERENCE} and {folder / 'docs/methods'}")


if __name__ == "__main__":
    main()
