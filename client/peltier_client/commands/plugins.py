"""Commands of other packages, imported only when they are run."""

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
    """A command needs packages that are not installed; the message names the extra that installs them."""

    is_user_error = True


@dataclass(frozen=True)
class Known:
    """The help of a command in `peltier --help`, which does not load it, and the extra that installs its packages."""

    help: str
    extra: str


KNOWN = {
    "serve": Known("Serve any mix of adapters from one backbone.", "server"),
    "train": Known("Train an adapter and write its artifact.", "training"),
    "sweep": Known("Train many runs and compare presets, seeds, sizes and settings.", "training"),
    "worker": Known("Train what tenants send to a server.", "training"),
    "evaluate": Known("Measure an artifact on labelled data.", "training"),
    "inspect": Known("Show an artifact's manifest and size.", "adapters"),
    "presets": Known("List the presets with their parameter counts.", "adapters"),
    "import": Known("Convert an adapter of another library to an artifact.", "adapters"),
    "convert": Known("Write a checkpoint, pickled ones too, as safetensors.", "adapters"),
    "pull": Known("Pull artifacts from the Hugging Face hub or a bucket.", "adapters"),
    "push": Known("Push an artifact and its model card to the Hugging Face hub.", "adapters"),
    "store": Known("Back up, restore, check and clean a server's store.", "adapters"),
}


class PluginCommand(TyperCommand):
    """A command or group whose module is imported when it is run or when its own help is printed."""

    def __init__(self, entry_point: EntryPoint) -> None:
        known = KNOWN.get(entry_point.name)
        help_ = known.help if known else f"From {entry_point.module}."
        super().__init__(name=entry_point.name, help=help_, rich_help_panel=PANEL)
        self._entry_point = entry_point
        self._extra = known.extra if known else None

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the real command, so that Typer invokes that one."""
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
    """Raise `MissingExtra` if an external package is missing, at the import or in the call."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not is_missing(package):
            raise
        remedy = f': pip install "peltier[{extra}]", or make install in a clone' if extra else ""
        raise MissingExtra(f"peltier {command} needs {package}, which is not installed{remedy}") from error


def is_missing(package: str) -> bool:
    """Whether `package` is external and not installed; any other failed import is a bug."""
    return bool(package) and not package.startswith("peltier_") and find_spec(package) is None


def plugin_commands() -> Iterator[PluginCommand]:
    """The commands of installed packages: the known ones in their order, then the others by name."""
    order = list(KNOWN)
    found = {entry_point.name: entry_point for entry_point in entry_points(group=GROUP)}
    for name in sorted(found, key=lambda name: (order.index(name) if name in KNOWN else len(order), name)):
        yield PluginCommand(found[name])
