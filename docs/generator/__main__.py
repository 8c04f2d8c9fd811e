"""`python -m docs.generator` writes the pages; with `--check` it only fails if one of them is stale."""

import sys
from collections.abc import Callable
from pathlib import Path

from docs.generator.commands_page import commands_page
from docs.generator.errors_page import errors_page
from docs.generator.metrics_page import metrics_page
from docs.generator.routes_page import routes_page
from docs.generator.settings_page import settings_page

REFERENCE = Path(__file__).parents[1] / "reference"
PAGES: dict[str, Callable[[], str]] = {
    "commands.md": commands_page,
    "errors.md": errors_page,
    "metrics.md": metrics_page,
    "routes.md": routes_page,
    "settings.md": settings_page,
}
_NOTE = "<!-- Written by `make reference` from the code; do not edit. -->\n"


def stale_pages() -> dict[str, str]:
    """The pages that differ from the code, by their name, with the correct text."""
    pages = {name: _NOTE + page() for name, page in PAGES.items()}
    return {name: text for name, text in pages.items() if _committed(name) != text}


def _committed(name: str) -> str | None:
    path = REFERENCE / name
    return path.read_text() if path.exists() else None


def main() -> None:
    """Writes or checks."""
    stale = stale_pages()
    if "--check" in sys.argv[1:]:
        if stale:
            sys.exit(f"stale pages in docs/reference: {', '.join(stale)}; run `make reference`")
        return
    for name, text in stale.items():
        (REFERENCE / name).write_text(text)


if __name__ == "__main__":
    main()
