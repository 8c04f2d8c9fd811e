"""`peltier keys` and `peltier tenants`: API keys, and tenants with their quotas."""

import re
from dataclasses import make_dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, cast, get_args

import typer

from peltier_client.commands.arguments import Result, TenantFilter, checked
from peltier_client.commands.field_options import FieldOptions, OptionValues, with_field_options
from peltier_client.commands.tables import print_keys, print_tenants
from peltier_client.errors import InvalidInput
from peltier_client.exchange.request import to_json
from peltier_client.protocol.administration import NewKey, Scope, TenantQuotas
from peltier_client.protocol.names import check_name
from peltier_client.resources.administration import QuotaOptions
from peltier_client.synchronous import Client

_SCOPES = get_args(Scope)
_NO_LIMIT = "none"
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
TenantOption = Annotated[str, typer.Option(help="Tenant of the key.", callback=checked(check_name))]
Note = Annotated[str, typer.Option(help="Note to show in lists of keys.")]
ExpiresIn = Annotated[
    str | None, typer.Option(metavar="TIME", help="Lifetime, such as 30m, 12h or 90d. Default: unlimited.")
]
PrefixArgument = Annotated[
    str, typer.Argument(metavar="PREFIX", help="The first eight characters of the key after plt_.")
]
TenantArgument = Annotated[
    str, typer.Argument(metavar="TENANT", help="Name of the tenant.", callback=checked(check_name))
]
_Limit = Annotated[str | None, typer.Option(metavar="N", help="A number, or none for no limit.")]


def _check_scopes(scopes: list[str]) -> list[str]:
    for scope in scopes:
        if scope not in _SCOPES:
            raise typer.BadParameter(f"scope {scope!r} is not one of {', '.join(_SCOPES)}")
    return scopes


Scopes = Annotated[
    list[str],
    typer.Option(
        "--scope", help="predict, publish, train, admin or metrics; may be given several times.", callback=_check_scopes
    ),
]


def create_key(
    client: Client, scope: Scopes, tenant: TenantOption = "default", note: Note = "", expires_in: ExpiresIn = None
) -> Result:
    """Create a key and print it; it is not shown again."""
    expires_at = None if expires_in is None else datetime.now(UTC) + _read_time(expires_in)
    key = client.create_key(*scope, tenant=tenant, note=note, expires_at=expires_at)
    return key, lambda: _print_key(key)


def _print_key(key: NewKey) -> None:
    """The key alone is on stdout, for pipes and variables."""
    typer.echo(key.key)
    scopes = ", ".join(key.scopes)
    typer.echo(f"key {key.prefix} of tenant {key.tenant} ({scopes}); it is not shown again", err=True)


def list_keys(client: Client, tenant: TenantFilter = None) -> Result:
    """List every key without its secret, including revoked and expired keys."""
    keys = client.keys(tenant)
    none = "no keys yet; make one with: peltier keys create --scope admin"
    return {"keys": keys}, (lambda: print_keys(keys)) if keys else none


def revoke_key(client: Client, prefix: PrefixArgument) -> Result:
    """Revoke a key for good; every replica refuses it within a second."""
    client.revoke_key(prefix)
    return {"revoked": prefix}, f"revoked {prefix}"


def _read_time(text: str) -> timedelta:
    found = re.fullmatch(r"([1-9][0-9]{0,5})([mhd])", text)
    if found is None:
        raise typer.BadParameter(f"--expires-in {text!r} is not a time such as 30m, 12h or 90d")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


_Weight = Annotated[
    str | None, typer.Option(metavar="N", help="Share of a busy server; other tenants have 1 by default.")
]
# Quotas as texts on the command line.
QuotaFlags = make_dataclass(
    "QuotaFlags", [(name, _Weight if name == "weight" else _Limit, None) for name in TenantQuotas.model_fields]
)
QuotaValues = Annotated[OptionValues, FieldOptions(QuotaFlags, given=True)]


@with_field_options
def create_tenant(client: Client, name: TenantArgument, quotas: QuotaValues) -> Result:
    """Create a tenant. Quotas that are not given are unlimited."""
    tenant = client.create_tenant(name, **_read_quotas(quotas))
    return tenant, lambda: print_tenants([tenant])


@with_field_options
def set_quotas(client: Client, name: TenantArgument, quotas: QuotaValues) -> Result:
    """Change quotas of a tenant. Those that are not given stay as they are; `none` removes a limit."""
    changed = _read_quotas(quotas)
    kept = cast(QuotaOptions, client.tenant(name).quotas.model_dump())
    wanted: QuotaOptions = {**kept, **changed}
    tenant = client.set_tenant(name, **wanted)
    return tenant, lambda: print_tenants([tenant])


def list_tenants(client: Client) -> Result:
    """List every tenant with its quotas."""
    tenants = client.tenants()
    return {"tenants": tenants}, lambda: print_tenants(tenants)


def _read_quotas(given: OptionValues) -> QuotaOptions:
    texts = {name: None if text == _NO_LIMIT else text for name, text in given.items()}
    try:
        to_json(TenantQuotas, texts)
    except InvalidInput as error:
        raise typer.BadParameter(str(error)) from error
    read = TenantQuotas.model_validate(texts)
    return cast(QuotaOptions, {name: getattr(read, name) for name in texts})
