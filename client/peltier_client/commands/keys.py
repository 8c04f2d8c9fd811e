"""`peltier keys`: create, list and revoke API keys."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, get_args

import typer
from pydantic import BaseModel

from peltier_client.commands.arguments import ApiKey, Json, TenantFilter, Url, checked, connect, print_result
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
TenantOption = Annotated[str, typer.Option(help="Tenant of the key.", callback=checked(check_name))]
Note = Annotated[str, typer.Option(help="Note to show in lists of keys.")]
ExpiresIn = Annotated[
    str | None, typer.Option(metavar="TIME", help="Lifetime, such as 30m, 12h or 90d. Default: unlimited.")
]
PrefixArgument = Annotated[
    str, typer.Argument(metavar="PREFIX", help="The first eight characters of the key after plt_.")
]

app = typer.Typer(help="Create, list and revoke API keys.", no_args_is_help=True)


class KeyDocument(BaseModel):
    """What `peltier keys list --json` prints."""

    keys: list[KeyInfo]


class Revoked(BaseModel):
    """What `peltier keys revoke --json` prints."""

    revoked: str


@app.command("create")
def create(  # noqa: PLR0913 - each is a word of the command line
    scope: Scopes,
    tenant: TenantOption = "default",
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
    # The key alone is on stdout, for pipes and variables.
    print_result(key, key.key, json=json)
    if not json:
        scopes = ", ".join(key.scopes)
        typer.echo(f"key {key.prefix} of tenant {key.tenant} ({scopes}); it is not shown again", err=True)


@app.command("list")
def list_keys(tenant: TenantFilter = None, url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False) -> None:
    """List every key without its secret, including revoked and expired keys."""
    with connect(url, api_key) as client:
        keys = client.keys(tenant)
    none = "no keys yet; make one with: peltier keys create --scope admin"
    print_result(KeyDocument(keys=keys), (lambda: print_keys(keys)) if keys else none, json=json)


@app.command("revoke")
def revoke(prefix: PrefixArgument, url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False) -> None:
    """Revoke a key for good; every replica refuses it within a second."""
    with connect(url, api_key) as client:
        client.revoke_key(prefix)
    print_result(Revoked(revoked=prefix), f"revoked {prefix}", json=json)


def _read_time(text: str) -> timedelta:
    found = re.fullmatch(r"([1-9][0-9]{0,5})([mhd])", text)
    if found is None:
        raise typer.BadParameter(f"--expires-in {text!r} is not a time such as 30m, 12h or 90d")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})
