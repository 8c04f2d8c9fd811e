"""Help pages that break words longer than their column. Typer by itself truncates them, even names of options.

Importing this module takes a tenth of a second, so it is imported only when a help page is printed.
"""

from collections.abc import Iterable
from typing import Any

from rich.columns import Columns
from rich.table import Table
from rich.text import Text
from typer import rich_utils


class _FoldedTable(Table):
    def add_row(self, *cells: Any, **options: Any) -> None:
        super().add_row(*cells, **options)
        for column in self.columns:
            column.overflow = "fold"


class _FoldedColumns(Columns):
    def __init__(self, items: Iterable[Any]) -> None:
        items = list(items)
        for item in items:
            if isinstance(item, Text):
                item.overflow = "fold"
        super().__init__(items)


def fold_long_words() -> None:
    """Make Typer's help pages break long words in this process."""
    vars(rich_utils).update(Table=_FoldedTable, Columns=_FoldedColumns)
