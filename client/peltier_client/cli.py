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
    predict,
    rollouts,
    top,
    trainings,
)
from peltier_client.commands.arguments import of_server
from peltier_client.commands.help_texts import show_literally
from peltier_client.commands.plugins import plugin_commands

Commands = Mapping[str, Callable[..., None]]

_COMMANDS: Commands = {
    "predict": predict.predict,
    "upload": of_server(adapters.upload),
    "list": of_server(adapters.list_adapters),
    "download": of_server(adapters.download),
    "compare": compare.compare,
    "versions": of_server(aliases.versions),
    "delete": of_server(adapters.delete),
    "undelete": of_server(aliases.undelete),
    "alias": of_server(aliases.alias),
    "rollback": of_server(aliases.rollback),
    "feedback": of_server(rollouts.feedback),
    "deprecate": of_server(aliases.deprecate),
    "pin": of_server(adapters.pin),
    "unpin": of_server(adapters.unpin),
    "top": top.top,
    "doctor": doctor.doctor,
    "audit": of_server(aliases.audit),
}
_BATCHES: Commands = {
    "run": batches.run,
    "wait": batches.wait_for,
    "list": of_server(batches.list_batches),
    "show": of_server(batches.show_batch),
    "cancel": of_server(batches.cancel),
}
_KEYS: Commands = {
    "create": of_server(administration.create_key),
    "list": of_server(administration.list_keys),
    "revoke": of_server(administration.revoke_key),
}
_ROLLOUT: Commands = {
    "start": of_server(rollouts.start_rollout),
    "show": of_server(rollouts.show_rollout),
    "stop": of_server(rollouts.stop_rollout),
}
_TENANTS: Commands = {
    "create": of_server(administration.create_tenant),
    "set": of_server(administration.set_quotas),
    "list": of_server(administration.list_tenants),
}
_TRAININGS: Commands = {
    "list": of_server(trainings.list_trainings),
    "show": of_server(trainings.show_training),
    "watch": trainings.watch,
    "pause": of_server(trainings.pause),
    "resume": of_server(trainings.resume),
    "cancel": of_server(trainings.cancel),
    "delete": of_server(trainings.delete),
}
_GROUPS: Mapping[str, tuple[str, Commands]] = {
    "batches": ("Run, list, show, wait for and cancel batches of requests.", _BATCHES),
    "keys": ("Create, list and revoke API keys.", _KEYS),
    "rollout": ("Try a version behind an alias, show what was found, and stop it.", _ROLLOUT),
    "tenants": ("Create and list tenants, and set their quotas.", _TENANTS),
    "trainings": ("List, watch, pause, resume, cancel and delete trainings.", _TRAININGS),
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
    for name, (help_, commands) in _GROUPS.items():
        group_app = typer.Typer(help=help_, no_args_is_help=True)
        for command_name, command in commands.items():
            group_app.command(command_name)(command)
        app.add_typer(group_app, name=name, rich_help_panel=panel)
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
