"""`peltier tenants`: make and list tenants, and say what they may use."""

from collections.abc import Mapping
from typing import Annotated, Any, cast

import typer
from pydantic import BaseModel

from peltier_client.commands.arguments import ApiKey, Json, Url, checked, connect, print_json
from peltier_client.commands.tables import print_tenants
from peltier_client.errors import InvalidInput
from peltier_client.exchange.connection import DEFAULT_URL
from peltier_client.exchange.request import to_json
from peltier_client.protocol import TenantInfo, TenantQuotas, check_name
from peltier_client.resources.tenants import QuotaOptions

_NO_LIMIT = "none"

Name = Annotated[str, typer.Argument(metavar="TENANT", help="Its name.", callback=checked(check_name))]
Requests = Annotated[str | None, typer.Option("--requests-per-second", metavar="N", help="A number, or none.")]
Tokens = Annotated[str | None, typer.Option("--tokens-per-second", metavar="N", help="A number, or none.")]
Concurrent = Annotated[str | None, typer.Option("--max-concurrent-requests", metavar="N", help="A number, or none.")]
Stored = Annotated[str | None, typer.Option("--max-stored-bytes", metavar="N", help="A number, or none.")]
Adapters = Annotated[str | None, typer.Option("--max-adapters", metavar="N", help="A number, or none.")]
Weight = Annotated[
    str | None, typer.Option(metavar="N", help="Share of a busy server; other tenants have 1 by default.")
]

app = typer.Typer(help="Make and list tenants, and say what they may use.", no_args_is_help=True)


class Tenants(BaseModel):
    """What `peltier tenants list --json` prints."""

    tenants: list[TenantInfo]


@app.command("create")
def create(  # noqa: PLR0913 - each is a word of the command line
    name: Name,
    requests_per_second: Requests = None,
    tokens_per_second: Tokens = None,
    max_concurrent_requests: Concurrent = None,
    max_stored_bytes: Stored = None,
    max_adapters: Adapters = None,
    weight: Weight = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Make a tenant; what is not given is not limited."""
    quotas = _read_quotas(locals())
    with connect(url, api_key) as client:
        _show(client.create_tenant(name, **quotas), json=json)


@app.command("set")
def set_quotas(  # noqa: PLR0913 - each is a word of the command line
    name: Name,
    requests_per_second: Requests = None,
    tokens_per_second: Tokens = None,
    max_concurrent_requests: Concurrent = None,
    max_stored_bytes: Stored = None,
    max_adapters: Adapters = None,
    weight: Weight = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Change what a tenant may use; what is not given stays, `none` takes a limit away."""
    quotas = _read_quotas(locals())
    with connect(url, api_key) as client:
        kept = cast(QuotaOptions, client.tenant(name).quotas.model_dump())
        wanted: QuotaOptions = {**kept, **quotas}
        _show(client.set_tenant(name, **wanted), json=json)


@app.command("list")
def list_tenants(url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False) -> None:
    """List every tenant with what it may use."""
    with connect(url, api_key) as client:
        tenants = client.tenants()
    if json:
        print_json(Tenants(tenants=tenants))
    else:
        print_tenants(tenants)


def _read_quotas(arguments: Mapping[str, Any]) -> QuotaOptions:
    """Those of a command's arguments that are quotas and were given."""
    given = {name: text for name, text in arguments.items() if name in TenantQuotas.model_fields and text is not None}
    texts = {name: None if text == _NO_LIMIT else text for name, text in given.items()}
    try:
        to_json(TenantQuotas, texts)
    except InvalidInput as error:
        raise typer.BadParameter(str(error)) from error
    read = TenantQuotas.model_validate(texts)
    return cast(QuotaOptions, {name: getattr(read, name) for name in texts})


def _show(tenant: TenantInfo, *, json: bool) -> None:
    if json:
        print_json(tenant)
    else:
        print_tenants([tenant])
