"""matplotlib figures as inline SVG in the colours of the page around them, light or dark."""

import re

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from peltier_training.report.svg import STYLE, to_svg

# matplotlib knows no CSS: a figure is drawn in stand-ins, which become the page's own colours.
INK, FAINT, MAIN, SECOND = "#010203", "#010204", "#010205", "#010206"
_PAGE_COLOURS = {INK: "currentColor", FAINT: "var(--line)", MAIN: "var(--main)", SECOND: "var(--second)"}
_STYLE = {
    **STYLE,
    "svg.fonttype": "none",  # texts stay texts, in the page's font
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


class Drawing:
    """One plot, `width` by `height` inches; its texts are ours alone, never a user's."""

    def __init__(self, width: float, height: float) -> None:
        with mpl.rc_context(_STYLE):  # type: ignore[arg-type]
            self._figure = Figure(figsize=(width, height), layout="constrained", facecolor="none")
            FigureCanvasSVG(self._figure)
            self.plot: Axes = self._figure.add_subplot()
        self.plot.set_facecolor("none")

    def svg(self, name: str, spoken: str) -> str:
        """One `<svg>` element; `name` makes its ids its own on the page, `spoken` is what a screen reader says."""
        with mpl.rc_context(_STYLE):  # type: ignore[arg-type]
            text = to_svg(self._figure)
        text = text[text.index("<svg") :]
        text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text)  # HTML knows these
        prefix = re.sub(r"\W+", "-", name)
        text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", text)
        for stand_in, colour in _PAGE_COLOURS.items():
            text = text.replace(stand_in, colour)
        return text.replace("<svg", f'<svg role="img" aria-label="{spoken}"', 1)
