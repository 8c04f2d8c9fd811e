"""`peltier rollout`: guarded changes of aliases; and `peltier feedback`, which decides them."""

from typing import Annotated, Any

import typer

from peltier_client.commands.aliases import AliasName
from peltier_client.commands.arguments import OwnAdapter, Result
from peltier_client.protocol.rollouts import AtEnd, Rollout
from peltier_client.synchronous import Client

VersionArgument = Annotated[int, typer.Argument(metavar="VERSION", help="The version to try.")]
ShareOption = Annotated[float | None, typer.Option(help="Share of the alias's requests, between 0 and 1.")]
ShadowOption = Annotated[bool, typer.Option("--shadow", help="Compute the version beside the answers instead.")]
AlphaOption = Annotated[float | None, typer.Option(help="Probability of a false decision. Default: 0.05.")]
MarginOption = Annotated[float | None, typer.Option(help="Loss of accuracy to rule out. Default: 0.02.")]
HoursOption = Annotated[float | None, typer.Option(help="Hours until the end. Default: 72.")]
AtEndOption = Annotated[AtEnd | None, typer.Option(help="What to do then: promote or roll_back. Default: roll_back.")]
RequestIdArgument = Annotated[str, typer.Argument(metavar="REQUEST_ID", help="The x-request-id of the answer.")]
RowOption = Annotated[int, typer.Option(min=0, help="The place of the input in the request.")]
LabelOption = Annotated[list[str] | None, typer.Option("--label", help="The right label; of a multilabel task each.")]
RightOption = Annotated[bool | None, typer.Option("--right/--wrong", help="Whether the answer was right.")]


def start_rollout(  # noqa: PLR0913 - each is a word of the command line
    client: Client,
    task: OwnAdapter,
    alias: AliasName,
    version: VersionArgument,
    share: ShareOption = None,
    shadow: ShadowOption = False,
    alpha: AlphaOption = None,
    margin: MarginOption = None,
    max_hours: HoursOption = None,
    at_end: AtEndOption = None,
) -> Result:
    """Try a version behind an alias; the server promotes it or rolls it back."""
    if (share is None) != shadow:
        raise typer.BadParameter("give either --share or --shadow")
    given: dict[str, Any] = {
        "share": share,
        "alpha": alpha,
        "margin": margin,
        "max_hours": max_hours,
        "at_end": at_end,
    }
    guard = {name: value for name, value in given.items() if value is not None}
    found = client.start_rollout(task, alias, version, shadow=shadow, **guard)
    return found, lambda: _print(task, found)


def show_rollout(client: Client, task: OwnAdapter, alias: AliasName) -> Result:
    """Show the newest guarded change of an alias: its state, what was counted, and the evidence."""
    found = client.rollout(task, alias)
    none = f"{task}@{alias} has had no guarded change; begin one with: peltier rollout start {task} {alias} VERSION"
    return {"rollout": found}, none if found is None else lambda: _print(task, found)


def stop_rollout(client: Client, task: OwnAdapter, alias: AliasName) -> Result:
    """End the guarded change of an alias; the version that it meant before answers every request."""
    found = client.stop_rollout(task, alias)
    return found, lambda: _print(task, found)


def feedback(
    client: Client,
    request_id: RequestIdArgument,
    row: RowOption = 0,
    label: LabelOption = None,
    right: RightOption = None,
) -> Result:
    """Tell the right label of an answer, or whether it was right."""
    if bool(label) == (right is not None):
        raise typer.BadParameter("give either --label, or --right or --wrong")
    known: dict[str, Any] = {"right": right} if not label else {"label": label[0] if len(label) == 1 else label}
    told = client.feedback(request_id, row=row, **known)
    sentence = f"the answer of {told.adapter}@{told.version} was {'right' if told.right else 'wrong'}"
    return told, sentence if told.counted else f"{sentence}; the guarded change has ended"


def _print(task: str, found: Rollout) -> None:
    how = "shadows" if found.share is None else f"gets {found.share:.0%} of the requests beside"
    typer.echo(f"{task}@{found.alias}: version {found.candidate} {how} version {found.incumbent}; {found.state}")
    if found.reason is not None:
        typer.echo(found.reason)
    for name, value in found.evidence.items():
        typer.echo(f"  {name:<13} evidence {value:>10.4g}   needed {found.needed[name]:g}")
    for name, counts in found.counts.items():
        typer.echo(f"  {name:<13} {', '.join(f'{value} {what}' for what, value in counts.items())}")
