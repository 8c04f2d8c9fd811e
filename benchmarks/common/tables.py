"""Tables that are printed line by line, as their figures are measured."""

import statistics
from collections.abc import Sequence


class Table:
    """Columns of text: the first is aligned at its left, the others at their right. The heads are printed at once."""

    def __init__(self, *heads: str, first: int = 30) -> None:
        """`first` is the width of the first column."""
        self._widths = [first, *(max(10, len(head) + 2) for head in heads[1:])]
        self.row(*heads)

    def row(self, *cells: object) -> None:
        """Prints one line; a cell that is None stays empty."""
        own, *others = ("" if cell is None else str(cell) for cell in cells)
        widths = zip(others, self._widths[1:], strict=False)
        print((own.ljust(self._widths[0]) + "".join(cell.rjust(width) for cell, width in widths)).rstrip(), flush=True)


def median(values: Sequence[float] | None, form: str = ".2f") -> str:
    """The median of the rounds as a cell, which is empty if there are none."""
    return format(statistics.median(values), form) if values else ""
