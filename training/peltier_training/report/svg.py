"""The common style of plots, and their SVG with reproducible bytes."""

import io
from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

STYLE: Mapping[str, Any] = {
    "svg.hashsalt": "peltier",  # makes the bytes reproducible
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
    """An SVG document without metadata. Call it in the `rc_context` in which the figure was drawn."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata=_NO_METADATA)
    return buffer.getvalue()
