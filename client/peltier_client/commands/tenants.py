"""`peltier tenants`: create and list tenants, and set their quotas."""

from dataclasses import dataclass
from typing import Annotated, cast

import typer
from pydantic import BaseModel

from peltier_client.commands.arguments import ApiKey, Json, Url, checked, connect, print_result
from peltier_client.commands.field_options import FieldOptions, OptionValues, with_field_options
from peltier_client.commands.tables import print_tenants
from peltier_client.errors import InvalidInput
from peltier_client.exchange.connection import DEFAULT_URL
from peltier_client.exchange.request import to_json
from peltier_client.protocol import TenantInfo, TenantQuotas, check_name
from peltier_client.resources.administration import QuotaOptions

_NO_LIMIT = "none"

TenantArgument = Annotated[
    str, typer.Argument(metavar="TENANT", help="Name of the tenant.", callback=checked(check_name))
]
_Limit = Annotated[str | None, typer.Option(metavar="N", help="A number, or none for no limit.")]

app = typer.Typer(help="Create and list tenants, and set their quotas.", no_args_is_help=True)


@dataclass(frozen=True)
class QuotaFlags:
    """Quotas as texts on the command line."""

    requests_per_second: _Limit = None
    tokens_per_second: _Limit = None
    max_concurrent_requests: _Limit = None
    max_stored_bytes: _Limit = None
    max_adapters: _Limit = None
    weight: Annotated[
        str | None, typer.Option(metavar="N", help="Share of a busy server; other tenants have 1 by default.")
    ] = None


QuotaValues = Annotated[OptionValues, FieldOptions(QuotaFlags, given=True)]


class Tenants(BaseModel):
    """What `peltier tenants list --json` prints."""

    tenants: list[TenantInfo]


@app.command("create")
@with_field_options
def create(
    name: TenantArgument, quotas: QuotaValues, url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False
) -> None:
    """Create a tenant. Quotas that are not given are unlimited."""
    wanted = _read_quotas(quotas)
    with connect(url, api_key) as client:
        tenant = client.create_tenant(name, **wanted)
    print_result(tenant, lambda: print_tenants([tenant]), json=json)


@app.command("set")
@with_field_options
def set_quotas(
    name: TenantArgument, quotas: QuotaValues, url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False
) -> None:
    """Change quotas of a tenant. Those that are not given stay as they are; `none` removes a limit."""
    changed = _read_quotas(quotas)
    with connect(url, api_key) as client:
        kept = cast(QuotaOptions, client.tenant(name).quotas.model_dump())
        wanted: QuotaOptions = {**kept, **changed}
        tenant = client.set_tenant(name, **wanted)
    print_result(tenant, lambda: print_tenants([tenant]), json=json)


@app.command("list")
def list_tenants(url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False) -> None:
    """List every tenant with its quotas."""
    with connect(url, api_key) as client:
        tenants = client.tenants()
    print_result(Tenants(tenants=tenants), lambda: print_tenants(tenants), json=json)


def _read_quotas(given: OptionValues) -> QuotaOptions:
    texts = {name: None if text == _NO_LIMIT else text for name, text in given.items()}
    try:
        to_json(TenantQuotas, texts)
    except InvalidInput as error:
        raise typer.BadParameter(str(error)) from error
    read = TenantQuotas.model_validate(texts)
    return cast(QuotaOptions, {name: getattr(read, name) for name in texts})
