"""The commands that decide which version answers, and show who decided: alias, rollback, deprecate, undelete, audit."""

from itertools import islice
from typing import Annotated

import typer
from pydantic import BaseModel

from peltier_client.commands.arguments import ApiKey, Json, OwnAdapter, Task, Url, checked, connect, print_json
from peltier_client.commands.tables import print_alias_history, print_aliases, print_audit, shown_split
from peltier_client.exchange.connection import DEFAULT_URL
from peltier_client.protocol import Alias, AliasChange, AliasHistory, AliasList, AuditRecord, check_alias, check_name

AliasName = Annotated[
    str, typer.Argument(metavar="ALIAS", help="Alias, such as production.", callback=checked(check_alias))
]
OptionalAlias = Annotated[
    str | None,
    typer.Argument(
        metavar="ALIAS",
        help="Alias, such as production. Without it, the adapter's aliases are listed.",
        callback=checked(check_alias),
    ),
]
Versions = Annotated[
    str | None, typer.Argument(metavar="VERSION", help="A version, 3, or shares of several, 3=0.9,4=0.1.")
]
History = Annotated[bool, typer.Option("--history", help="Show the alias's history instead, newest first.")]
Reason = Annotated[str | None, typer.Argument(metavar="REASON", help="Reason for the deprecation.")]
Undo = Annotated[bool, typer.Option("--undo", help="Remove the deprecation.")]
Limit = Annotated[int, typer.Option(min=1, help="Maximum number of records.")]
OfTenant = Annotated[
    str | None, typer.Option(metavar="TENANT", help="Only changes of this tenant.", callback=checked(check_name))
]


class AuditList(BaseModel):
    """What `peltier audit --json` prints."""

    records: list[AuditRecord]


def alias(  # noqa: PLR0913 - each is a word of the command line
    task: OwnAdapter,
    alias: OptionalAlias = None,
    version: Versions = None,
    history: History = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Let an alias mean a version, or split its requests over several; or list the aliases, or what one has meant."""
    if alias is None:
        if history:
            raise typer.BadParameter("--history is of one alias: name it")
        _list_aliases(task, url, api_key, json=json)
        return
    if history == (version is not None):
        raise typer.BadParameter("either a VERSION or --history is wanted")
    split = _read_split(version) if version is not None else None
    with connect(url, api_key) as client:
        if split is not None:
            _show(task, client.set_alias(task, alias, split), json=json)
        else:
            _show_history(client.alias_history(task, alias), json=json)


def rollback(
    task: OwnAdapter, alias: AliasName, url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False
) -> None:
    """Let an alias mean what it meant before."""
    with connect(url, api_key) as client:
        _show(task, client.rollback_alias(task, alias), json=json)


def deprecate(  # noqa: PLR0913 - each is a word of the command line
    task: Task,
    reason: Reason = None,
    undo: Undo = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Advise against a version (TASK@3)."""
    if undo == bool(reason):
        raise typer.BadParameter("either a REASON or --undo is wanted")
    with connect(url, api_key) as client:
        version = client.deprecate(task, reason)
    if json:
        print_json(version)
    else:
        typer.echo(f"{task} is {'no longer ' if undo else ''}deprecated")


def undelete(task: Task, url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False) -> None:
    """Bring a deleted version (TASK@3) back."""
    with connect(url, api_key) as client:
        version = client.undelete(task)
    if json:
        print_json(version)
    else:
        typer.echo(f"{version.name} version {version.version} is back ({version.preset}, {version.digest})")


def audit(
    limit: Limit = 50, tenant: OfTenant = None, url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False
) -> None:
    """Show who did what, newest first."""
    with connect(url, api_key) as client:
        records = list(islice(client.audit(tenant), limit))
    if json:
        print_json(AuditList(records=records))
    else:
        print_audit(records)


def _list_aliases(task: str, url: str, api_key: str | None, *, json: bool) -> None:
    with connect(url, api_key) as client:
        aliases = client.aliases(task)
    if json:
        print_json(AliasList(aliases=aliases))
    elif aliases:
        print_aliases(aliases)
    else:
        typer.echo(f"{task} has no aliases yet; make one with: peltier alias {task} production VERSION")


def _read_split(text: str) -> int | dict[int, float]:
    try:
        if text.isdecimal():
            return int(text)
        return {int(number): float(share) for number, share in (part.split("=") for part in text.split(","))}
    except ValueError:
        raise typer.BadParameter(f"VERSION {text!r} is neither a version, as 3, nor shares, as 3=0.9,4=0.1") from None


def _show(task: str, alias: Alias, *, json: bool) -> None:
    if json:
        print_json(alias)
        return
    typer.echo(f"{task}@{alias.alias} means {shown_split(alias.versions)}")


def _show_history(changes: list[AliasChange], *, json: bool) -> None:
    if json:
        print_json(AliasHistory(changes=changes))
    else:
        print_alias_history(changes)
