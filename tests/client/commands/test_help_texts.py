"""Help pages and shell completion of every command, those that other packages bring included."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import cache
from importlib.metadata import EntryPoint
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from peltier_client import cli
from peltier_client.commands import plugins
from peltier_client.commands.help_texts import literal
from peltier_client.commands.plugins import PluginCommand
from rich.text import Text
from typer.core import TyperGroup, TyperOption

WIDE = 1000
HOSTILE = r"NAME[/TASK] [bold]a[/bold] :smile: \[b] [[c]] [link=x] http://h:8/p: word"


def walk(command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with the words that name it."""
    if isinstance(command, PluginCommand):
        command = command.load()
    yield path, command
    for name, child in command.commands.items() if isinstance(command, TyperGroup) else ():
        yield from walk(child, (*path, name))


@pytest.fixture(scope="module")
def every_command() -> dict[tuple[str, ...], Any]:
    """By their words; the modules of all plugins are imported."""
    return dict(walk(cli.create_command()))


class Pages:
    """The help pages of the whole command, each printed once."""

    def __init__(self) -> None:
        self._command = cli.create_command()
        self.read = cache(self._read)

    def _read(self, path: tuple[str, ...], width: int) -> str:
        """The page of the command that these words name, at that width."""
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as shown:
            patch.setenv("COLUMNS", str(width))
            with pytest.raises(SystemExit) as caught:
                self._command([*path, "--help"], prog_name="peltier")
        assert not caught.value.code
        return shown.getvalue()


@pytest.fixture(scope="module")
def pages() -> Pages:
    """Of the commands that are installed."""
    return Pages()


def test_the_walk_finds_the_commands_of_all_packages(every_command: dict[tuple[str, ...], Any]) -> None:
    """The tests below see groups, their commands and plugins."""
    known = {(name,) for name in plugins.KNOWN}
    assert {(), ("predict",), ("keys", "create"), ("store", "gc"), *known} <= set(every_command)


@pytest.mark.parametrize("width", [60, pytest.param(80, marks=pytest.mark.slow)])
def test_every_help_page_opens_whole(width: int, every_command: dict[tuple[str, ...], Any], pages: Pages) -> None:
    """On a narrow terminal no line is longer and no word is cut: a page shows the letters of the widest one."""
    for path in every_command:
        page, whole = (pages.read(path, columns) for columns in (width, WIDE))
        assert max(map(len, page.splitlines())) <= width
        letters, wanted = (sorted(re.sub(r"[\s╭─╮│╰╯]", "", text)) for text in (page, whole))
        assert letters == wanted, path


def test_every_help_text_is_on_its_page(every_command: dict[tuple[str, ...], Any], pages: Pages) -> None:
    """On a wide terminal: the command's own, and the name and the text of each option."""
    for path, command in every_command.items():
        page = pages.read(path, WIDE)
        shown = [one for one in command.params if not getattr(one, "hidden", False)]
        texts = [Text.from_markup(text).plain for text in (command.help, *(one.help for one in shown)) if text]
        assert {word for text in texts for word in text.split()} <= set(page.split()), path
        names = {name for one in shown if isinstance(one, TyperOption) for name in one.opts}
        assert names <= set(re.split(r"[\s,]+", page)), path


def test_no_help_text_is_markup(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of a docstring, an option, an argument, a panel and a command within a group of another package."""
    source = f"""
import typer
from typing import Annotated
HOSTILE = {HOSTILE!r}
app = typer.Typer(help=HOSTILE, epilog=HOSTILE)
@app.command(help="first " + HOSTILE)
def one(where: Annotated[str, typer.Argument(help="second " + HOSTILE)],
        how: Annotated[str, typer.Option(help="third " + HOSTILE, rich_help_panel="Panel [/x]")] = "a"): ...
@app.command()
def two(): ...
"""
    (tmp_path / "brought.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "brought", raising=False)
    announced = [EntryPoint("hostile", "brought:app", plugins.GROUP)]
    monkeypatch.setattr(plugins, "entry_points", lambda group: announced)
    pages = Pages()
    group = pages.read(("hostile",), 200)
    assert group.count(HOSTILE) == 3
    page = pages.read(("hostile", "one"), 200)
    assert all(f"{place} {HOSTILE}" in page for place in ("first", "second", "third"))
    assert "Panel [/x]" in page


@pytest.mark.parametrize(
    "text", [HOSTILE, "end\\", "[", "\\", ":", "::a::", "\\\\[b]", "[]", "[/]", ":smile", "a[:b:]"]
)
def test_literal_is_exact(text: str) -> None:
    """Rich shows the text again, without a style."""
    shown = Text.from_markup(literal(text))
    assert shown.plain == text
    assert all(span.start == span.end for span in shown.spans)


TYPED = {
    "peltier pre": ["predict", "presets"],
    "peltier keys ": ["create", "list", "revoke"],
    "peltier store e": ["export"],
    "peltier predict --max": ["--max-new-tokens"],
    "peltier train --rec": ["--recipe"],
    "peltier serve --backb": ["--backbone"],
}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("typed", TYPED)
def test_commands_and_options_are_completed(typed, shell, peltier, monkeypatch):
    """By the protocol of each shell, for our own commands and for those of plugins."""
    words = typed.split(" ")
    monkeypatch.setenv("_PELTIER_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", typed)
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    outcome = peltier()
    assert outcome.status == 0
    values = re.findall(r'"(\S+?)":' if shell == "zsh" else r"(?m)^(\S+)", outcome.out)
    assert [value for value in values if value.startswith(words[-1])] == TYPED[typed]


@pytest.mark.slow  # The gate speaks the protocol of each shell, in the test above.
@pytest.mark.skipif(shutil.which("bash") is None, reason="asks a real bash")
def test_a_real_bash_completes() -> None:
    """What `peltier --show-completion` prints makes the shell complete words."""
    program = Path(sys.executable).with_name("peltier")
    script = (
        'eval "$(peltier --show-completion)"; COMP_WORDS=(peltier train --rec) COMP_CWORD=2; '
        '_peltier_completion peltier; echo "${COMPREPLY[@]}"; complete -p peltier'
    )
    environment = os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    done = subprocess.run(["/bin/bash", "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "--recipe\ncomplete -o default -F _peltier_completion peltier\n"


def test_every_command_prints_json(every_command: dict[tuple[str, ...], Any]) -> None:
    """`--json` is an option of every command that ends by printing something; a server and a worker do not."""
    commands = {path: command for path, command in every_command.items() if not isinstance(command, TyperGroup)}
    assert ("compare",) in commands
    lacking = [path for path, command in commands.items() if not any("--json" in one.opts for one in command.params)]
    assert lacking == [("serve",), ("worker",)]
