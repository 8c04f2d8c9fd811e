"""The files of the methods: their drawings, and the tables between two comments of each page."""

import re
from pathlib import Path

from docs.generator.methods.counts import counts
from docs.generator.methods.drawing import drawing
from docs.generator.methods.method import METHODS
from docs.generator.methods.settings import settings

_DOCS = Path(__file__).parents[2]
_TABLES = {"counts": counts, "settings": settings}


def method_files() -> dict[Path, str]:
    """Each file with its correct text; the prose of a page stays as it is."""
    files = {_DOCS / f"figures/methods/{method.name}.svg": drawing(method) for method in METHODS}
    for method in METHODS:
        page = _DOCS / f"methods/{method.name}.md"
        text = page.read_text()
        for name, table in _TABLES.items():
            text = _replaced(text, name, table(method))
        files[page] = text
    return files


def _replaced(text: str, name: str, table: str) -> str:
    """`text` with the table between its comments `name` and `end`."""
    start = f"<!-- {name}: written by `make reference` -->"
    pattern = rf"{re.escape(start)}\n.*?<!-- end -->"
    if not re.search(pattern, text, flags=re.DOTALL):
        raise ValueError(f"a page of docs/methods has no comments {start} and <!-- end -->")
    return re.sub(pattern, lambda _: f"{start}\n\n{table}\n\n<!-- end -->", text, flags=re.DOTALL)
