"""Prints help texts as they are written: text that looks like Rich markup is not markup."""

import re
from typing import Any

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
        from peltier_client.commands.help_folding import fold_long_words

        fold_long_words()
        format_help(ctx, formatter)

    command.format_help = format_folded  # type: ignore[method-assign]
