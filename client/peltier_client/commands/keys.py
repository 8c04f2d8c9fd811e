"""`peltier keys`: make, list and revoke API keys."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, get_args

import typer
from pydantic import BaseModel

from peltier_client.commands.arguments import ApiKey, Json, Url, checked, connect, print_json
from peltier_client.commands.tables import print_keys
from peltier_client.exchange.connection import DEFAULT_URL
from peltier_client.protocol import KeyInfo, Scope, check_name

_SCOPES = get_args(Scope)
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def _check_scopes(scopes: list[str]) -> list[str]:
    for scope in scopes:
        if scope not in _SCOPES:
            raise typer.BadParameter(f"scope {scope!r} is not one of {', '.join(_SCOPES)}")
    return scopes


Scopes = Annotated[
    list[str],
    typer.Option(
        "--scope", help="predict, publish, admin or metrics; may be given several times.", callback=_check_scopes
    ),
]
Tenant = Annotated[str, typer.Option(help="Tenant of the key.", callback=checked(check_name))]
OfTenant = Annotated[str | None, typer.Option("--tenant", help="Only this tenant's.", callback=checked(check_name))]
Note = Annotated[str, typer.Option(help="Note that lists of keys show.")]
ExpiresIn = Annotated[str | None, typer.Option(metavar="TIME", help="30m, 12h or 90d; without it, never.")]
Prefix = Annotated[str, typer.Argument(metavar="PREFIX", help="The eight characters that name the key.")]

app = typer.Typer(help="Make, list and revoke API keys.", no_args_is_help=True)


class Keys(BaseModel):
    """What `peltier keys list --json` prints."""

    keys: list[KeyInfo]


class Revoked(BaseModel):
    """What `peltier keys revoke --json` prints."""

    revoked: str


@app.command("create")
def create(  # noqa: PLR0913 - each is a word of the command line
    scope: Scopes,
    tenant: Tenant = "default",
    note: Note = "",
    expires_in: ExpiresIn = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Create a key and print it; it is not shown again."""
    expires_at = None if expires_in is None else datetime.now(UTC) + _read_time(expires_in)
    with connect(url, api_key) as client:
        key = client.create_key(*scope, tenant=tenant, note=note, expires_at=expires_at)
    if json:
        print_json(key)
        return
    # Alone on stdout, for pipes and variables.
    typer.echo(key.key)
    typer.echo(f"key {key.prefix} of tenant {key.tenant} ({', '.join(key.scopes)}); it is not shown again", err=True)


@app.command("list")
def list_keys(tenant: OfTenant = None, url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False) -> None:
    """List every key without its secret, revoked and expired ones too."""
    with connect(url, api_key) as client:
        keys = client.keys(tenant)
    if json:
        print_json(Keys(keys=keys))
    elif keys:
        print_keys(keys)
    else:
        typer.echo("no keys yet; make one with: peltier keys create --scope admin")


@app.command("revoke")
def revoke(prefix: Prefix, url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False) -> None:
    """Take a key's rights for good, everywhere within a second."""
    with connect(url, api_key) as client:
        client.revoke_key(prefix)
    if json:
        print_json(Revoked(revoked=prefix))
    else:
        typer.echo(f"revoked {prefix}")


def _read_time(text: str) -> timedelta:
    found = re.fullmatch(r"([1-9][0-9]{0,5})([mhd])", text)
    if found is None:
        raise typer.BadParameter(f"--expires-in {text!r} is not a time: write 30m, 12h or 90d")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})
