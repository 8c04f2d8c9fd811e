"""Prints help texts as they are written: text that looks like Rich markup is not markup, and long words
are broken."""

import re
from collections.abc import Iterable
from typing import Any

from rich.columns import Columns
from rich.table import Table
from rich.text import Text
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

Command = TyperCommand | TyperGroup
# Tags begin with a bracket and emoji codes with a colon. An empty tag after that character keeps both from being read.
_EMPTY_TAG = "[b][/]"
_START = re.compile(r"(?P<backslashes>\\*)\[|:(?=\S)")


def show_literally(command: Command) -> None:
    """Escape every help text of `command`, its parameters and its subcommands. Call it once per command.

    Typer reads these texts as markup, in help pages and in shell completion.
    """
    if command.rich_markup_mode == "rich":
        _escape(command, "help", "short_help", "epilog", "rich_help_panel")
        for parameter in command.params:
            if isinstance(parameter, TyperOption | TyperArgument):
                _escape(parameter, "help", "rich_help_panel")
    _fold(command)
    if isinstance(command, TyperGroup):
        for child in command.commands.values():
            if isinstance(child, Command):
                show_literally(child)


def literal(text: str) -> str:
    """Markup that Rich shows as exactly `text`."""
    return _START.sub(_end_start, text)


def _end_start(match: re.Match[str]) -> str:
    backslashes = match["backslashes"]
    if backslashes:  # two of them before a tag stand for one
        return f"{2 * backslashes}{_EMPTY_TAG}[{_EMPTY_TAG}"
    return f"{match[0]}{_EMPTY_TAG}"


def _escape(owner: Command | TyperOption | TyperArgument, *names: str) -> None:
    for name in names:
        if text := getattr(owner, name, None):
            setattr(owner, name, literal(text))


def _fold(command: Command) -> None:
    format_help = command.format_help

    def format_folded(ctx: Any, formatter: Any) -> None:
        _fold_long_words()
        format_help(ctx, formatter)

    command.format_help = format_folded  # type: ignore[method-assign]


def _fold_long_words() -> None:
    """Make Typer's help pages break words longer than their column. Typer truncates them, even names of options."""
    # This import takes a tenth of a second.
    from typer import rich_utils

    class FoldedTable(Table):
        def add_row(self, *cells: Any, **options: Any) -> None:
            super().add_row(*cells, **options)
            for column in self.columns:
                column.overflow = "fold"

    class FoldedColumns(Columns):
        def __init__(self, items: Iterable[Any]) -> None:
            items = list(items)
            for item in items:
                if isinstance(item, Text):
                    item.overflow = "fold"
            super().__init__(items)

    vars(rich_utils).update(Table=FoldedTable, Columns=FoldedColumns)
