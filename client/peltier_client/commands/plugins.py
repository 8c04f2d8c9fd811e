"""Commands that other packages bring, loaded only when one of them is run."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any

import typer
from typer.core import TyperCommand

from peltier_client.commands.help_texts import Command, show_literally

GROUP = "peltier.commands"
PANEL = "Models and servers"


class MissingExtra(Exception):
    """A command needs packages that are not installed; the message names the extra that brings them."""

    is_user_error = True


@dataclass(frozen=True)
class Known:
    """What `peltier --help` says about a command that it does not load, and the extra that brings its packages."""

    help: str
    extra: str


KNOWN = {
    "serve": Known("Serve any mix of adapters from one backbone.", "server"),
    "train": Known("Train an adapter and write its artifact.", "training"),
    "sweep": Known("Compare presets, seeds, sizes and settings in many runs.", "training"),
    "evaluate": Known("Measure an artifact on labelled data.", "training"),
    "pretrain": Known("Make a small T5 from plain text.", "training"),
    "inspect": Known("Show an artifact's manifest and size.", "adapters"),
    "presets": Known("List the presets with their parameter counts.", "adapters"),
    "import": Known("Turn an adapter that others saved into an artifact.", "adapters"),
    "store": Known("Back up, restore, check and tidy what a server has stored.", "adapters"),
}


class PluginCommand(TyperCommand):
    """A command, or group of them, known by name: its module is imported when it is run or asked for its own help."""

    def __init__(self, entry_point: EntryPoint) -> None:
        known = KNOWN.get(entry_point.name)
        help_ = known.help if known else f"From {entry_point.module}."
        super().__init__(name=entry_point.name, help=help_, rich_help_panel=PANEL)
        self._entry_point = entry_point
        self._extra = known.extra if known else None

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the real command, which is then the one that is invoked."""
        return self.load().make_context(info_name, args, parent=parent, **extra)

    def load(self) -> Command:
        """The real command; its module is imported now."""
        name = self._entry_point.name
        with _explained(name, self._extra):
            app = self._entry_point.load()
        if not isinstance(app, typer.Typer):
            function, app = app, typer.Typer(add_completion=False)
            app.command(name)(_explained(name, self._extra)(function))
        command = typer.main.get_command(app)
        assert isinstance(command, Command), "Typer makes its own commands"
        show_literally(command)
        return command


@contextmanager
def _explained(command: str, extra: str | None) -> Iterator[None]:
    """Say which extra is missing where a package of others is; used around the import and around the call."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not _is_missing(package):
            raise
        remedy = f': pip install "peltier[{extra}]"' if extra else ""
        raise MissingExtra(f"peltier {command} needs {package}, which is not installed{remedy}") from error


def _is_missing(package: str) -> bool:
    """Whether it is a package of others that is not installed; anything else is a mistake in the code."""
    return bool(package) and not package.startswith("peltier_") and find_spec(package) is None


def plugin_commands() -> Iterator[PluginCommand]:
    """Every command that installed packages announce: the known ones in their order, then the others by name."""
    order = list(KNOWN)
    found = {entry_point.name: entry_point for entry_point in entry_points(group=GROUP)}
    for name in sorted(found, key=lambda name: (order.index(name) if name in KNOWN else len(order), name)):
        yield PluginCommand(found[name])
