"""`python -m docs.generator` writes the pages; with `--check` it only fails if one of them is stale."""

import sys
from collections.abc import Callable
from pathlib import Path

from docs.generator.commands_page import commands_page
from docs.generator.errors_page import errors_page
from docs.generator.methods.pages import method_files
from docs.generator.metrics_page import metrics_page
from docs.generator.python_page import python_page
from docs.generator.routes_page import routes_page
from docs.generator.settings_page import settings_page

REFERENCE = Path(__file__).parents[1] / "reference"
PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands_page,
    "errors.md": errors_page,
    "metrics.md": metrics_page,
    "python.md": python_page,
    "routes.md": routes_page,
    "settings.md": settings_page,
}
_NOTE = "<!-- Written by `make reference` from the code; do not edit. -->\n"


def stale_pages() -> dict[Path, str]:
    """The files that differ from the code, with the correct text."""
    pages = {REFERENCE / name: _NOTE + page() for name, page in PAGES.items()} | method_files()
    return {path: text for path, text in pages.items() if not path.exists() or path.read_text() != text}


def main() -> None:
    """Writes or checks."""
    stale = stale_pages()
    if "--check" in sys.argv[1:]:
        if stale:
            names = ", ".join(str(path.relative_to(REFERENCE.parents[1])) for path in stale)
            sys.exit(f"stale pages: {names}; run `make reference`")
        return
    for path, text in stale.items():
        path.write_text(text)


if __name__ == "__main__":
    main()
