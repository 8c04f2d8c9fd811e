"""Fits tables to a terminal: with full columns, narrower columns, or as a list. Pipes get every value in full."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

_GAP = 2
_PIPE_WIDTH = 1_000_000
_MAX_WORD_LEN = 24

CellTexts = Sequence[str]


@dataclass(frozen=True)
class Heading:
    """A column. `floor` is the minimum width to wrap its values to; None keeps each on one line. With `cut`, values are
    truncated with an ellipsis instead of wrapped."""

    name: str
    floor: int | None = None
    cut: bool = False


def show(headings: Sequence[Heading], rows: Sequence[CellTexts], console: Console | None = None) -> None:
    """Print rows of plain text; Rich markup in them is not read."""
    console = console or Console()
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    widths = fit(headings, rows, console.width)
    console.print(_list(headings, rows) if widths is None else _table(headings, rows, widths), highlight=False)


def fit(headings: Sequence[Heading], rows: Sequence[CellTexts], width: int) -> list[int] | None:
    """The width of each column so that all fit into `width`; None if a column would be below its floor."""
    columns = [[row[number] for row in rows] for number in range(len(headings))]
    wanted = [_widest([heading.name, *values]) for heading, values in zip(headings, columns, strict=True)]
    room = width - _GAP * (len(headings) - 1)
    if sum(wanted) <= room:
        return wanted
    # Keep words whole if there is room.
    for longest_word in (_MAX_WORD_LEN, 0):
        floors = [_floor(*column, longest_word) for column in zip(headings, columns, strict=True)]
        if sum(floors) <= room:
            return _share(floors, wanted, room - sum(floors))
    return None


def _floor(heading: Heading, values: Sequence[str], longest_word: int) -> int:
    least = _widest(values)
    if heading.floor is not None:
        words = 0 if heading.cut else _widest([word for value in values for word in value.split()])
        least = min(least, max(heading.floor, min(words, longest_word)))
    return max(least, _widest(heading.name.split()))


def _widest(texts: Sequence[str]) -> int:
    return max(map(cell_len, texts), default=0)


def _share(floors: Sequence[int], wanted: Sequence[int], room: int) -> list[int]:
    """Share the room above the floors equally, up to what each column wants."""
    widths = list(floors)
    by_need = sorted(range(len(floors)), key=lambda number: wanted[number] - floors[number])
    for place, number in enumerate(by_need):
        given = min(wanted[number] - floors[number], room // (len(floors) - place))
        widths[number] += given
        room -= given
    return widths


def _table(headings: Sequence[Heading], rows: Sequence[CellTexts], widths: Sequence[int]) -> Table:
    columns = [
        Column(heading.name, width=width, no_wrap=heading.cut, overflow="ellipsis" if heading.cut else "fold")
        for heading, width in zip(headings, widths, strict=True)
    ]
    for column in columns:
        # Headings wrap even if their values are truncated.
        column.header = Text(str(column.header), no_wrap=False, overflow="fold")
    table = Table(*columns, box=None, padding=(0, _GAP, 0, 0), pad_edge=False)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _list(headings: Sequence[Heading], rows: Sequence[CellTexts]) -> RenderableType:
    """Each row as lines of a name and a value, without empty values."""
    blocks: list[RenderableType] = []
    width = max(cell_len(heading.name) for heading in headings)
    for row in rows:
        grid = Table.grid(Column(width=width), Column(overflow="fold"), padding=(0, _GAP, 0, 0))
        for heading, value in zip(headings, row, strict=True):
            if value:
                grid.add_row(Text(heading.name, style="bold"), Text(value))
        blocks += [Text(), grid]
    return Group(*islice(blocks, 1, None))
