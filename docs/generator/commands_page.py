"""reference/commands.md: every command with its arguments and options."""

import inspect
import json
from collections.abc import Iterator
from typing import Any, get_args, get_origin

from peltier_client.cli import create_command
from peltier_client.commands.plugins import PluginCommand
from typer.core import TyperArgument, TyperGroup

from docs.generator.table import table

_HEAD = """# Commands

Exit status: 0 success, 1 failure with one sentence on stderr, 2 wrong usage, 130 interrupted. `--json` prints one JSON
document on stdout. Commands that call a server read its address from `PELTIER_URL` (`--url`) and the key from
`PELTIER_API_KEY` (`--api-key`). `peltier --version` prints the version, and `--help` after any command prints its help.
"""
# `show_literally` adds this after characters that Rich would read as markup.
_ESCAPE = "[b][/]"


def commands_page() -> str:
    """The page, in the order of `peltier --help`."""
    return _HEAD + "".join(_section(name, command) for name, command in _commands("peltier", create_command()))


def real_command(name: str) -> Any:
    """The command of this name, loaded."""
    command: Any = create_command().commands[name]
    return command.load() if isinstance(command, PluginCommand) else command


def _commands(prefix: str, group: TyperGroup) -> Iterator[tuple[str, Any]]:
    for name, listed in group.commands.items():
        command: Any = listed.load() if isinstance(listed, PluginCommand) else listed
        if isinstance(command, TyperGroup):
            yield from _commands(f"{prefix} {name}", command)
        else:
            yield f"{prefix} {name}", command


def _section(name: str, command: Any) -> str:
    arguments = [one for one in command.params if isinstance(one, TyperArgument)]
    options = [one for one in command.params if not isinstance(one, TyperArgument) and not one.hidden]
    usage = " ".join([name, *(_placeholder(one) for one in arguments), *(["[OPTIONS]"] if options else [])])
    text = inspect.cleandoc((command.help or "").replace(_ESCAPE, ""))
    rows = [_row(one) for one in (*arguments, *options)]
    parameters = f"\n{table(('name', 'value', 'default', 'description'), rows)}\n" if rows else ""
    return f"\n## {name}\n\n`{usage}`\n\n{text}\n{parameters}"


def _placeholder(argument: Any) -> str:
    shown = f"{argument.metavar or argument.name.upper()}{' …' if argument.nargs == -1 else ''}"
    return shown if argument.required else f"[{shown}]"


def _row(parameter: Any) -> tuple[str, ...]:
    is_argument = isinstance(parameter, TyperArgument)
    name = parameter.metavar or parameter.name.upper() if is_argument else ", ".join(parameter.opts)
    value = "" if not is_argument and parameter.is_flag else _type_name(parameter.type_descriptor.annotation)
    variable = f" Variable: `{parameter.envvar}`." if parameter.envvar else ""
    return f"`{name}`", value, _default(parameter), (parameter.help or "").replace(_ESCAPE, "") + variable


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    if parameter.default is None or parameter.default is False or parameter.default in ("", []):
        return ""
    return f"`{json.dumps(parameter.default, default=str)}`"


def _type_name(annotation: Any) -> str:
    if get_origin(annotation) is list:
        return f"{_type_name(get_args(annotation)[0])}, repeatable"
    return {"str": "text", "int": "integer", "float": "number", "Path": "path"}.get(annotation.__name__, "")
