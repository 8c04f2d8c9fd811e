"""The commands about versions: versions, alias, rollback, deprecate, undelete, and audit, which shows their log."""

from itertools import islice
from typing import Annotated

import typer

from peltier_client.commands.arguments import (
    ApiKey,
    Json,
    OwnAdapter,
    TaskArgument,
    TenantFilter,
    Url,
    checked,
    connect,
    print_result,
)
from peltier_client.commands.tables import print_alias_history, print_aliases, print_audit, print_versions, shown_split
from peltier_client.exchange.connection import DEFAULT_URL
from peltier_client.protocol.aliases import Alias, AliasHistory, AliasList
from peltier_client.protocol.names import check_alias

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
SharesArgument = Annotated[
    str | None, typer.Argument(metavar="VERSION", help="A version such as 3, or shares of several: 3=0.9,4=0.1.")
]
HistoryOption = Annotated[bool, typer.Option("--history", help="Show the alias's history instead, newest first.")]
Reason = Annotated[str | None, typer.Argument(metavar="REASON", help="Reason for the deprecation.")]
Undo = Annotated[bool, typer.Option("--undo", help="Remove the deprecation.")]
LimitOption = Annotated[int, typer.Option(min=1, help="Maximum number of records.")]


def alias(  # noqa: PLR0913 - each is a word of the command line
    task: OwnAdapter,
    alias: OptionalAlias = None,
    version: SharesArgument = None,
    history: HistoryOption = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Point an alias to a version, or to shares of several. Without VERSION, list aliases or show one's history."""
    if alias is None:
        if history:
            raise typer.BadParameter("--history needs an ALIAS")
        _list_aliases(task, url, api_key, json=json)
        return
    if history == (version is not None):
        raise typer.BadParameter("give either a VERSION or --history")
    split = _read_split(version) if version is not None else None
    with connect(url, api_key) as client:
        if split is not None:
            _show(task, client.set_alias(task, alias, split), json=json)
        else:
            changes = client.alias_history(task, alias)
            print_result(AliasHistory(changes=changes), lambda: print_alias_history(changes), json=json)


def rollback(
    task: OwnAdapter, alias: AliasName, url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False
) -> None:
    """Point an alias to what it meant before its last change."""
    with connect(url, api_key) as client:
        _show(task, client.rollback_alias(task, alias), json=json)


def deprecate(  # noqa: PLR0913 - each is a word of the command line
    task: TaskArgument,
    reason: Reason = None,
    undo: Undo = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Deprecate a version (TASK@3)."""
    if undo == bool(reason):
        raise typer.BadParameter("give either a REASON or --undo")
    with connect(url, api_key) as client:
        version = client.deprecate(task, reason)
    print_result(version, f"{task} is {'no longer ' if undo else ''}deprecated", json=json)


def undelete(task: TaskArgument, url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False) -> None:
    """Undelete a version (TASK@3)."""
    with connect(url, api_key) as client:
        version = client.undelete(task)
    sentence = f"undeleted {version.name} version {version.version} ({version.preset}, {version.digest})"
    print_result(version, sentence, json=json)


def audit(
    limit: LimitOption = 50,
    tenant: TenantFilter = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Show the audit log, newest first."""
    with connect(url, api_key) as client:
        records = list(islice(client.audit(tenant), limit))
    print_result({"records": records}, lambda: print_audit(records), json=json)


def _list_aliases(task: str, url: str, api_key: str | None, *, json: bool) -> None:
    with connect(url, api_key) as client:
        aliases = client.aliases(task)
    none = f"{task} has no aliases yet; make one with: peltier alias {task} production VERSION"
    print_result(AliasList(aliases=aliases), (lambda: print_aliases(aliases)) if aliases else none, json=json)


def _read_split(text: str) -> int | dict[int, float]:
    try:
        if text.isdecimal():
            return int(text)
        return {int(number): float(share) for number, share in (part.split("=") for part in text.split(","))}
    except ValueError:
        raise typer.BadParameter(
            f"VERSION {text!r} must be a version such as 3, or shares such as 3=0.9,4=0.1"
        ) from None


def _show(task: str, alias: Alias, *, json: bool) -> None:
    print_result(alias, f"{task}@{alias.alias} means {shown_split(alias.versions)}", json=json)


def versions(task: OwnAdapter, url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False) -> None:
    """List an adapter's versions, newest first, with the aliases that point to them."""
    with connect(url, api_key) as client:
        found = client.versions(task)
        adapter = client.adapter(task)
    document = {"name": adapter.name, "live": adapter.live, "aliases": adapter.aliases, "versions": found}
    print_result(document, lambda: print_versions(adapter, found), json=json)
