"""`peltier doctor`: what this machine has, what is broken, and what is slow."""

from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.text import Text

from peltier_client.commands.arguments import ApiKey, Json, Url, print_result
from peltier_client.commands.doctor.finding import Check, Finding
from peltier_client.commands.doctor.server import check_server
from peltier_client.commands.plugins import is_missing
from peltier_client.exchange.connection import DEFAULT_URL

GROUP = "peltier.checks"

_STYLES = {"ok": "green", "note": "cyan", "slow": "yellow", "broken": "bold red"}

Config = Annotated[Path | None, typer.Option(help="TOML file of settings, as for peltier serve.")]
Backbone = Annotated[str | None, typer.Option(help="As for peltier serve.")]
Store = Annotated[str | None, typer.Option(help="As for peltier serve.")]
Registry = Annotated[str | None, typer.Option(help="As for peltier serve.")]


class Diagnosis(BaseModel):
    """What `peltier doctor --json` prints: all findings, and how many of them are broken and slow."""

    broken: int
    slow: int
    findings: list[Finding]


def doctor(  # noqa: PLR0913 - each is a word of the command line
    context: typer.Context,
    config: Config = None,
    backbone: Backbone = None,
    store: Store = None,
    registry: Registry = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Check this machine: packages, processor, kernels, memory, store and server. Say what is slow and why.

    It changes nothing. The flags and the environment are those of peltier serve, whose settings it checks. The server
    is the one that other commands would call. Exit status 1 if something is broken.
    """
    flags = {"config": config, "backbone": backbone, "store": store, "registry": registry}
    named = context.get_parameter_source("url").name != "DEFAULT"  # type: ignore[union-attr]
    findings = [
        *_run_checks({name: value for name, value in flags.items() if value is not None}),
        *check_server(url, api_key, named=named),
    ]
    counts = {level: sum(one.level == level for one in findings) for level in ("broken", "slow")}
    print_result(Diagnosis(**counts, findings=findings), lambda: _print(findings, counts), json=json)
    if counts["broken"]:
        raise typer.Exit(1)


def _run_checks(flags: Mapping[str, Any]) -> Iterator[Finding]:
    """The findings of all packages that have checks; a package that cannot be imported is a finding."""
    for entry_point in sorted(entry_points(group=GROUP), key=lambda one: one.name):
        try:
            check: Check = entry_point.load()
            yield from check(flags)
        except ModuleNotFoundError as error:
            if not is_missing((error.name or "").partition(".")[0]):
                raise
            text = f"only the client was checked: {error.name} is not installed, so this machine cannot serve"
            step = 'to serve from it: pip install "peltier[server]"'
            yield Finding(subject="packages", level="note", text=text, next_step=step)


def _print(findings: Sequence[Finding], counts: Mapping[str, int]) -> None:
    console = Console()
    table = Table.grid(padding=(0, 2, 0, 0))
    for one in findings:
        text = f"{one.text} -> {one.next_step}" if one.next_step else one.text
        table.add_row(Text(one.level, style=_STYLES[one.level]), one.subject, Text(text, overflow="fold"))
        if not console.is_terminal:
            typer.echo(f"{one.level:6}  {one.subject:9}  {text}")
    if console.is_terminal:
        console.print(table, highlight=False)
    typer.echo(f"{counts['broken']} broken, {counts['slow']} slow")
