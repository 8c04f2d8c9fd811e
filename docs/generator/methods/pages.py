"""The files of the methods: their drawings, and their pages with the drawing and two tables in place of comments."""

import re
from pathlib import Path

from docs.generator.methods.counts import counts
from docs.generator.methods.drawing import drawing
from docs.generator.methods.method import METHODS, Method
from docs.generator.methods.settings import settings

_ROOT = Path(__file__).parents[3]
_PAGES = Path("docs/methods")
_DRAWINGS = Path("docs/figures/methods")
# What stands between the two comments is shown where nothing is built.
_PLACE = re.compile(r"<!-- (drawing|counts|settings)(?:: ([^\n]+))? -->\n.*?<!-- end -->", flags=re.DOTALL)


def method_files() -> dict[Path, str]:
    """The text of each drawing and page, by its path in the repository."""
    drawings = {_DRAWINGS / f"{method.name}.svg": drawing(method) for method in METHODS}
    return drawings | {_PAGES / f"{method.name}.md": _page(method) for method in METHODS}


def _page(method: Method) -> str:
    text = (_ROOT / _PAGES / f"{method.name}.md").read_text()
    names = [name for name, _ in _PLACE.findall(text)]
    if names != ["drawing", "counts", "settings"]:
        raise ValueError(f"docs/methods/{method.name}.md has places for {names}, not for drawing, counts and settings")
    return _PLACE.sub(lambda place: _content(method, *place.groups()), text)


def _content(method: Method, name: str, words: str | None) -> str:
    if name == "drawing":
        return f"![{words}](../figures/methods/{method.name}.svg)"
    return counts(method) if name == "counts" else settings(method)
