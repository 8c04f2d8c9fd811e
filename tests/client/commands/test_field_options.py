"""Options that are fields of a dataclass."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
import typer
from peltier_client.commands.field_options import FieldOptions, OptionValues, with_field_options
from typer import Option
from typer.testing import CliRunner


@dataclass(frozen=True)
class Model:
    """A field of each kind; `hidden` is no option."""

    size: Annotated[int, Option(help="How large.")]
    names: Annotated[tuple[str, ...], Option("--name", help="Names.")] = ("a",)
    rate: Annotated[float | None, Option(help="How fast.")] = None
    kind: Annotated[Literal["x", "y"] | None, Option(help="Which kind.")] = None
    depth: Annotated[int, Option(help="How deep.")] = 0
    fast: Annotated[bool, Option("--fast", help="Hurry.")] = False
    hidden: int = 3


def run(options: FieldOptions, words: Sequence[str]) -> tuple[Any, str]:
    """What a command with these options gets from a command line, and what it prints."""
    found: list[OptionValues] = []

    @with_field_options
    def command(*, values: Annotated[OptionValues, options], last: int = 0) -> None:
        found.append(values | {"last": last})

    app = typer.Typer()
    app.command()(command)
    done = CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})
    return (found[0] if found else None), done.output


def test_a_command_gets_every_field():
    """Those that are not given have the model's defaults; a Literal is left to the model."""
    words = ["--size=2", "--name=b", "--name=c", "--kind=z", "--last=1"]
    found, _ = run(FieldOptions(Model), words)
    own = {"size": 2, "names": ("b", "c"), "rate": None, "kind": "z", "depth": 0, "fast": False}
    assert found == own | {"last": 1}
    assert Model(**own).hidden == 3


def test_help_is_that_of_the_fields():
    """With type and default, in the panel that was asked for; a field without a default is required."""
    _, text = run(FieldOptions(Model, panel="Sizes"), ["--help"])
    assert "─ Sizes ─" in text
    for line in ("--size", "<int>", "How large. [required]", "--name", "Names. [default: a]", "How deep. [default: 0]"):
        assert line in text
    assert "hidden" not in text


def test_only_what_is_given_can_be_asked_for():
    """Then nothing is required, and the help names each default."""
    options = FieldOptions(Model, given=True)
    assert run(options, ["--depth=0", "--fast"])[0] == {"depth": 0, "fast": True, "last": 0}
    _, text = run(options, ["--help"])
    assert "How deep. Default 0." in text
    assert "Names. Default a." in text
    assert "Default" not in next(line for line in text.splitlines() if "Hurry." in line)


@pytest.mark.parametrize(
    ("options", "words", "found", "line"),
    [
        (FieldOptions(Model, ("depth",), repeated=True, given=True), ["--depth=1", "--depth=2"], (1, 2), "Repeat for"),
        (
            FieldOptions(Model, ("depth",), given=True, unset="Default: deep."),
            ["--depth=1"],
            1,
            "How deep. Default: deep.",
        ),
    ],
)
def test_chosen_fields(options: FieldOptions, words: list[str], found, line: str):
    """Of one model, repeated or with another word for the default."""
    assert run(options, words)[0] == {"depth": found, "last": 0}
    text = run(options, ["--help"])[1]
    assert line in text
    assert "--size" not in text
