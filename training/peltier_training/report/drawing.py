"""matplotlib figures as inline SVG in the colours of their page, light or dark."""

import io
import re
from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
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
# matplotlib does not support CSS variables: figures use stand-in colours, which are then replaced by the page's.
INK, FAINT, MAIN, SECOND = "#010203", "#010204", "#010205", "#010206"
_PAGE_COLOURS = {INK: "currentColor", FAINT: "var(--line)", MAIN: "var(--main)", SECOND: "var(--second)"}
_STYLE = {
    **STYLE,
    "svg.fonttype": "none",  # keep texts as text in the page's font
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "lines.linewidth": 1.6,
}
_NO_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}


class Drawing:
    """One plot of `width` by `height` inches. It must not contain texts of users, which are not escaped."""

    def __init__(self, width: float, height: float) -> None:
        with mpl.rc_context(_STYLE):  # type: ignore[arg-type]
            self._figure = Figure(figsize=(width, height), layout="constrained", facecolor="none")
            FigureCanvasSVG(self._figure)
            self.plot: Axes = self._figure.add_subplot()
        self.plot.set_facecolor("none")

    def svg(self, name: str, spoken: str) -> str:
        """One `<svg>` element; `name` makes its ids unique on the page, `spoken` is for screen readers."""
        with mpl.rc_context(_STYLE):  # type: ignore[arg-type]
            text = to_svg(self._figure)
        text = text[text.index("<svg") :]
        text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text)  # not needed in HTML
        prefix = re.sub(r"\W+", "-", name)
        text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", text)
        for stand_in, colour in _PAGE_COLOURS.items():
            text = text.replace(stand_in, colour)
        return text.replace("<svg", f'<svg role="img" aria-label="{spoken}"', 1)


def to_svg(figure: Figure) -> str:
    """An SVG document without metadata. Call it in the `rc_context` in which the figure was drawn."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata=_NO_METADATA)
    return buffer.getvalue()
