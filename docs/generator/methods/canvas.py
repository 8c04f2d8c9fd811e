"""Shapes and colours that all drawings share, in the style of docs/figures/concepts.svg."""

from collections.abc import Iterable
from html import escape
from typing import NamedTuple

WIDTH = 960
# Fill and stroke of what is frozen, and of what each kind of part adds.
COLOURS = {
    "frozen": ("#e6e6e6", "#999"),
    "plain": ("#fff", "#999"),
    "bottleneck": ("#cfe3f7", "#4a86c5"),
    "lora": ("#f9dcc0", "#d5853a"),
    "prefix": ("#d3ecd0", "#58a04e"),
    "prompt": ("#faecb8", "#a98a1c"),
    "bias": ("#f7d6e0", "#b8496c"),
    "norm": ("#f7d6e0", "#b8496c"),
    "gate": ("#e3d6f2", "#7d58ad"),
    "trained": ("#f7d6e0", "#b8496c"),
}
# What each colour is on a dark ground. A rule of a style sheet overrides the attribute.
DARK = {
    "#fff": "#171c24",
    "#222": "#e6eaf0",
    "#555": "#aab4c2",
    "#999": "#7d8898",
    "#ddd": "#2b3442",
    "#e6e6e6": "#2b3442",
    "#cfe3f7": "#1d3a5c",
    "#4a86c5": "#6ea8ff",
    "#f9dcc0": "#4a3015",
    "#d5853a": "#ff9b57",
    "#d3ecd0": "#1d3d25",
    "#58a04e": "#56c98a",
    "#faecb8": "#43390f",
    "#a98a1c": "#e0c45a",
    "#f7d6e0": "#4a2132",
    "#b8496c": "#f57fb6",
    "#e3d6f2": "#35264d",
    "#7d58ad": "#b78cff",
}
_DARK_RULES = "".join(
    f'[{name}="{light}"]{{{name}:{dark}}}' for light, dark in DARK.items() for name in ("fill", "stroke")
)


def document(title: str, height: float, parts: Iterable[str]) -> str:
    """An SVG with a ground of its own, which is dark in a dark page."""
    body = "\n  ".join(parts)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" \
font-family="system-ui, sans-serif" font-size="13" fill="#222">
  <title>{escape(title)}</title>
  <style>@media (prefers-color-scheme: dark){{{_DARK_RULES}}}</style>
  <defs>
    <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">
      <path d="M0 0 8 4 0 8z" fill="#555"/>
    </marker>
  </defs>
  <rect width="{WIDTH}" height="{height:g}" rx="8" fill="#fff"/>
  {body}
</svg>
"""


class Place(NamedTuple):
    """The middle and the size of a rectangle."""

    x: float
    y: float
    width: float
    height: float = 34


def text(x: float, y: float, words: str, *, anchor: str = "middle", note: bool = False) -> str:
    """A line of text; `y` is its baseline. A note is smaller and grey."""
    style = ' font-size="12" fill="#555"' if note else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{style}>{escape(words)}</text>'


def box(place: Place, words: str = "", colour: str = "frozen") -> str:
    """A rectangle with text in its middle."""
    fill, stroke = COLOURS[colour]
    x, y, width, height = place
    edge = f'x="{x - width / 2:g}" y="{y - height / 2:g}" width="{width:g}" height="{height:g}"'
    return f'<rect {edge} rx="4" fill="{fill}" stroke="{stroke}"/>' + (text(x, y + 4.5, words) if words else "")


def funnel(x: float, y: float, words: str, colour: str, *, narrows: bool) -> str:
    """A map to fewer values (from left to right), or to more."""
    fill, stroke = COLOURS[colour]
    left, right = (34, 15) if narrows else (15, 34)
    edge = f"M{x - 27:g} {y - left:g} {x + 27:g} {y - right:g} {x + 27:g} {y + right:g} {x - 27:g} {y + left:g}z"
    return f'<path d="{edge}" fill="{fill}" stroke="{stroke}"/>' + text(x, y + 4.5, words)


def circle(x: float, y: float, words: str, colour: str = "plain", radius: float = 11) -> str:
    """A sum, a product or a gate."""
    fill, stroke = COLOURS[colour]
    ring = f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" fill="{fill}" stroke="{stroke}"/>'
    return ring + text(x, y + 4.5, words)


def arrow(path: str, *, dashed: bool = False) -> str:
    """A line with a head at its end."""
    dash = ' stroke-dasharray="4 3"' if dashed else ""
    return f'<path d="{path}" fill="none" stroke="#555"{dash} marker-end="url(#arrow)"/>'


def line(path: str) -> str:
    """A line without a head."""
    return f'<path d="{path}" fill="none" stroke="#555"/>'
