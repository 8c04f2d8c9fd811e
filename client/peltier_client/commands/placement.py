"""The commands about memory: pin, unpin, and explain placement."""

from datetime import datetime
from typing import Annotated, cast, get_args

import typer

from peltier_client.commands.arguments import ApiKey, Json, OwnAdapter, Url, checked, connect, print_result
from peltier_client.errors import ConnectionFailed
from peltier_client.exchange.connection import DEFAULT_URL, check_url
from peltier_client.protocol import AdapterPlacement, PinnedTier, VersionPlacement

_TIERS = get_args(PinnedTier)


def _check_tier(tier: str) -> str:
    if tier not in _TIERS:
        raise typer.BadParameter(f"tier {tier!r} is not one of {', '.join(_TIERS)}")
    return tier


def _check_urls(urls: list[str]) -> list[str]:
    for url in urls:
        checked(check_url)(url)
    return urls


TierOption = Annotated[
    str, typer.Option("--tier", help="Memory to keep the adapter in: device or host.", callback=_check_tier)
]
Replicas = Annotated[
    list[str],
    typer.Option("--replica", metavar="URL", help="Address of a further replica; several times.", callback=_check_urls),
]
explain = typer.Typer(help="Explain what a server does.", no_args_is_help=True)


def pin(
    task: OwnAdapter, tier: TierOption = "device", url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False
) -> None:
    """Keep an adapter in the memory of every replica."""
    with connect(url, api_key) as client:
        placement = client.pin(task, cast(PinnedTier, tier))
    print_result(placement, lambda: _print(placement), json=json)


def unpin(task: OwnAdapter, url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False) -> None:
    """Release the pin of an adapter; it stays in memory until it is evicted."""
    with connect(url, api_key) as client:
        client.unpin(task)
    print_result({"unpinned": task}, f"unpinned {task}", json=json)


@explain.command("placement")
def explain_placement(
    task: OwnAdapter,
    replica: Replicas = [],  # noqa: B006 - typer reads it
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Say where an adapter is in the memory of each replica that answers, since when and why."""
    found = list[AdapterPlacement]()
    silent = list[str]()
    for address in dict.fromkeys([url, *replica]):
        try:
            with connect(address, api_key) as client:
                found.append(client.placement(task))
        except ConnectionFailed as error:
            if not replica:
                raise
            silent.append(f"{address} does not answer: {error}")
    print_result({"replicas": found, "silent": silent}, lambda: _print_all(found, silent), json=json)


def _print_all(found: list[AdapterPlacement], silent: list[str]) -> None:
    for placement in found:
        _print(placement)
    for sentence in silent:
        typer.echo(sentence, err=True)


def _print(placement: AdapterPlacement) -> None:
    pin = placement.pin
    by = "not pinned" if pin is None else f"pinned to the {pin.tier} tier by {pin.pinned_by} at {_time(pin.pinned_at)}"
    typer.echo(f"{placement.name} is {by}; on replica {placement.replica}:")
    for version in placement.versions:
        typer.echo(f"  version {version.version} ({_share(version)}): {version.reason}{_last_use(version)}")


def _share(version: VersionPlacement) -> str:
    return f"{version.share:.4g} of the requests for the name" if version.share else "only by its number"


def _time(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def _last_use(version: VersionPlacement) -> str:
    return "" if version.last_used_at is None else f"; last used at {_time(version.last_used_at)}"
