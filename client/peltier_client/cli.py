"""The `peltier` command: its subcommands and its exit status.

Exit status: 0 success, 1 failure with one line on stderr, 2 wrong usage, 130 interrupted.
"""

import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Annotated

import typer
from stamina.instrumentation import set_on_retry_hooks
from typer.core import TyperGroup

from peltier_client.commands import (
    adapters,
    administration,
    aliases,
    batches,
    compare,
    doctor,
    pins,
    predict,
    rollouts,
    top,
    trainings,
)
from peltier_client.commands.help_texts import show_literally
from peltier_client.commands.plugins import plugin_commands

_COMMANDS: Mapping[str, Callable[..., None]] = {
    "predict": predict.predict,
    "upload": adapters.upload,
    "list": adapters.list_adapters,
    "download": adapters.download,
    "compare": compare.compare,
    "versions": aliases.versions,
    "delete": adapters.delete,
    "undelete": aliases.undelete,
    "alias": aliases.alias,
    "rollback": aliases.rollback,
    "feedback": rollouts.feedback,
    "deprecate": aliases.deprecate,
    "pin": pins.pin,
    "unpin": pins.unpin,
    "top": top.top,
    "doctor": doctor.doctor,
    "audit": aliases.audit,
}


_GROUPS: Mapping[str, typer.Typer] = {
    "batches": batches.batches,
    "keys": administration.keys,
    "rollout": rollouts.rollout,
    "tenants": administration.tenants,
    "trainings": trainings.trainings,
}


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"peltier {version('peltier')}")
        raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
]


def _peltier(version: VersionOption = False) -> None:
    """Train, publish and serve adapters of one frozen language model, any mix of them in one batch."""


def create_command() -> TyperGroup:
    """The whole command: the client's subcommands and those of other packages."""
    app = typer.Typer(callback=_peltier, no_args_is_help=True)
    panel = "Using a server"
    for name, command in _COMMANDS.items():
        app.command(name, rich_help_panel=panel)(command)
    for name, commands in _GROUPS.items():
        app.add_typer(commands, name=name, rich_help_panel=panel)
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    for plugin in plugin_commands():
        if plugin.name not in group.commands:
            group.add_command(plugin)
    show_literally(group)
    return group


def main() -> None:
    """Run the command line. User errors print one line; any other error is a bug and prints its traceback."""
    # Without hooks stamina logs no retries.
    set_on_retry_hooks([])
    try:
        create_command()(prog_name="peltier")
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if not _is_user_error(error):
            raise
        typer.echo(f"error: {one_line(error)}", err=True)
        sys.exit(1)


def _is_user_error(error: Exception) -> bool:
    """Whether `error` is marked as a user error, or is the operating system's error about a named file."""
    return getattr(error, "is_user_error", False) or (isinstance(error, OSError) and error.filename is not None)


def one_line(error: Exception) -> str:
    """The message of `error` with those of its details that it does not contain."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    message = str(error) or type(error).__name__
    details = [detail for detail in getattr(error, "details", ()) if detail not in message]
    return " ".join(f"{message}{': ' if details else ''}{'; '.join(details)}".split())
