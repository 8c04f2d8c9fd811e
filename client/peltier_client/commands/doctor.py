"""`peltier doctor`: what this machine has, what is broken, and what is slow.

Packages add their own checks under the entry points `peltier.checks`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from peltier_client.commands.arguments import ApiKey, Json, Url, next_step, print_result
from peltier_client.commands.plugins import is_missing
from peltier_client.errors import ConnectionFailed, PeltierError
from peltier_client.exchange.connection import DEFAULT_URL
from peltier_client.protocol.operations import InfoResponse
from peltier_client.synchronous import Client

FindingLevel = Literal["ok", "note", "slow", "broken"]
GROUP = "peltier.checks"
_TIMEOUT_SECONDS = 5.0  # for an answer of the server
_SUBJECT = "server"

_STYLES = {"ok": "green", "note": "cyan", "slow": "yellow", "broken": "bold red"}

ConfigOption = Annotated[Path | None, typer.Option(help="TOML file of settings, as for peltier serve.")]
BackboneOption = Annotated[str | None, typer.Option(help="As for peltier serve.")]
StoreUrlOption = Annotated[str | None, typer.Option(help="As for peltier serve.")]
RegistryOption = Annotated[str | None, typer.Option(help="As for peltier serve.")]


@dataclass(frozen=True)
class Finding:
    """What is so, in one sentence, and what to do about it.

    `note`: worth knowing. `slow`: it works, and could be faster. `broken`: something does not work.
    """

    subject: str
    level: FindingLevel
    text: str
    next_step: str | None = None


# Takes the flags of `peltier doctor` that were given, by the names of the server's settings.
Check = Callable[[Mapping[str, Any]], Iterator[Finding]]


def doctor(  # noqa: PLR0913 - each is a word of the command line
    context: typer.Context,
    config: ConfigOption = None,
    backbone: BackboneOption = None,
    store: StoreUrlOption = None,
    registry: RegistryOption = None,
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
    print_result({**counts, "findings": findings}, lambda: _print(findings, counts), json=json)
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
            yield Finding("packages", "note", text, step)


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


def check_server(url: str, api_key: str | None, *, named: bool) -> Iterator[Finding]:
    """Whether it answers, is ready and has this release. It need not exist unless it was `named`."""
    with Client(url, api_key, timeout=_TIMEOUT_SECONDS, max_attempts=1) as client:
        try:
            reason = client.why_not_ready()
        except PeltierError as error:
            level: FindingLevel = "broken" if named or not isinstance(error, ConnectionFailed) else "note"
            yield Finding(_SUBJECT, level, error.message, next_step(error, api_key))
            return
        if reason is not None:
            step = "wait until it has loaded, or read its log"
            yield Finding(_SUBJECT, "broken", f"{url} is not ready: {reason}", step)
            return
        try:
            info = client.info()
        except PeltierError as error:
            text = f"{url} is ready, but does not answer GET /info: {error.message}"
            yield Finding(_SUBJECT, "note", text, next_step(error, api_key))
            return
    yield from _describe(url, info)


def _describe(url: str, info: InfoResponse) -> Iterator[Finding]:
    backbone, own = info.backbone, version("peltier")
    kernels = ", ".join(f"{purpose}: {name}" for purpose, name in info.kernels.items())
    text = (
        f"{url} is ready: peltier {info.version}, {backbone.name} in {backbone.dtype} on {backbone.device} "
        f"({kernels}), {info.num_adapters} adapters"
    )
    yield Finding(_SUBJECT, "ok", text)
    if info.version != own:
        text = f"the server is peltier {info.version} and this is {own}"
        yield Finding(_SUBJECT, "note", text, f"pip install peltier=={info.version}")
    if backbone.device == "cpu" and info.kernels.get("adapters") == "torch":
        reason = info.kernels.get("torch", "because it has no native kernels")
        text = f"the server computes adapters with torch: {reason}"
        step = "run peltier doctor on its machine"
        yield Finding(_SUBJECT, "slow", text, step)
    for one in info.quarantined:
        text = f"{one.adapter.name}@{one.adapter.version} is in quarantine: {one.reason}"
        step = f"peltier rollback {one.adapter.name} production, or upload a version that works"
        yield Finding(_SUBJECT, "note", text, step)
