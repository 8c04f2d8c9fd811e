"""Requests about API keys."""

from collections.abc import Iterable
from datetime import datetime
from typing import TypedDict
from urllib.parse import quote

from peltier_client.exchange.request import Request, page_query, raise_for_error, reader, to_json
from peltier_client.protocol import KeyList, KeyRequest, NewKey, check_name


class KeyOptions(TypedDict, total=False):
    """Fields of a new key, as keyword arguments. See `peltier_client.protocol.KeyRequest`."""

    tenant: str
    note: str
    expires_at: datetime | None


def create_key(scopes: Iterable[str], options: KeyOptions) -> Request[NewKey]:
    """Create a key."""
    json = to_json(KeyRequest, {"scopes": sorted(set(scopes)), **options})
    return Request("POST", "/v1/keys", reader(NewKey), json=json)


def list_keys(tenant: str | None, cursor: str | None = None) -> Request[KeyList]:
    """The page of keys at `cursor`, of all tenants or one; None is the first."""
    own = {"tenant": check_name(tenant, "tenant")} if tenant is not None else {}
    return Request("GET", "/v1/keys", reader(KeyList), query=page_query(cursor) | own)


def revoke_key(prefix: str) -> Request[None]:
    """Revoke a key."""
    return Request("DELETE", f"/v1/keys/{quote(prefix, safe='')}", raise_for_error)
