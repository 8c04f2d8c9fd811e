"""What all plots have in common: matplotlib's style of axes and grid, and SVG that is the same bytes each time."""

import io
from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

STYLE: Mapping[str, Any] = {
    "svg.hashsalt": "peltier",  # the same figure is the same bytes
    "font.size": 9,
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.formatter.useoffset": False,
    "grid.linewidth": 0.5,
}
_NO_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}


def to_svg(figure: Figure) -> str:
    """An SVG document without dates or names; the style that it was drawn in must still be set."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata=_NO_METADATA)
    return buffer.getvalue()
