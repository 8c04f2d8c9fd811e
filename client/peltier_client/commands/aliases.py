"""The commands about versions: versions, alias, rollback, deprecate, undelete, and audit, which shows their log."""

from itertools import islice
from typing import Annotated

import typer

from peltier_client.commands.arguments import OwnAdapter, Result, TaskArgument, TenantFilter, checked
from peltier_client.commands.tables import print_alias_history, print_aliases, print_audit, print_versions, shown_split
from peltier_client.protocol.aliases import Alias, AliasHistory, AliasList
from peltier_client.protocol.names import check_alias
from peltier_client.synchronous import Client

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


def alias(
    client: Client,
    task: OwnAdapter,
    alias: OptionalAlias = None,
    version: SharesArgument = None,
    history: HistoryOption = False,
) -> Result:
    """Point an alias to a version, or to shares of several. Without VERSION, list aliases or show one's history."""
    if alias is None:
        if history:
            raise typer.BadParameter("--history needs an ALIAS")
        return _list_aliases(client, task)
    if history == (version is not None):
        raise typer.BadParameter("give either a VERSION or --history")
    if version is not None:
        return _shown(task, client.set_alias(task, alias, _read_split(version)))
    changes = client.alias_history(task, alias)
    return AliasHistory(changes=changes), lambda: print_alias_history(changes)


def rollback(client: Client, task: OwnAdapter, alias: AliasName) -> Result:
    """Point an alias to what it meant before its last change."""
    return _shown(task, client.rollback_alias(task, alias))


def deprecate(client: Client, task: TaskArgument, reason: Reason = None, undo: Undo = False) -> Result:
    """Deprecate a version (TASK@3)."""
    if undo == bool(reason):
        raise typer.BadParameter("give either a REASON or --undo")
    version = client.deprecate(task, reason)
    return version, f"{task} is {'no longer ' if undo else ''}deprecated"


def undelete(client: Client, task: TaskArgument) -> Result:
    """Undelete a version (TASK@3)."""
    version = client.undelete(task)
    return version, f"undeleted {version.name} version {version.version} ({version.preset}, {version.digest})"


def audit(client: Client, limit: LimitOption = 50, tenant: TenantFilter = None) -> Result:
    """Show the audit log, newest first."""
    records = list(islice(client.audit(tenant), limit))
    return {"records": records}, lambda: print_audit(records)


def _list_aliases(client: Client, task: str) -> Result:
    aliases = client.aliases(task)
    none = f"{task} has no aliases yet; make one with: peltier alias {task} production VERSION"
    return AliasList(aliases=aliases), (lambda: print_aliases(aliases)) if aliases else none


def _read_split(text: str) -> int | dict[int, float]:
    try:
        if text.isdecimal():
            return int(text)
        return {int(number): float(share) for number, share in (part.split("=") for part in text.split(","))}
    except ValueError:
        raise typer.BadParameter(
            f"VERSION {text!r} must be a version such as 3, or shares such as 3=0.9,4=0.1"
        ) from None


def _shown(task: str, alias: Alias) -> Result:
    return alias, f"{task}@{alias.alias} means {shown_split(alias.versions)}"


def versions(client: Client, task: OwnAdapter) -> Result:
    """List an adapter's versions, newest first, with the aliases that point to them."""
    found = client.versions(task)
    adapter = client.adapter(task)
    document = {"name": adapter.name, "live": adapter.live, "aliases": adapter.aliases, "versions": found}
    return document, lambda: print_versions(adapter, found)
