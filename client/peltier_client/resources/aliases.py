"""Requests about aliases: list, history, set, roll back, delete."""

from collections.abc import Mapping

import httpx2

from peltier_client.exchange.request import Request, raise_for_error, read_body, reader, to_json
from peltier_client.protocol import Alias, AliasChange, AliasHistory, AliasList, AliasRequest, check_alias, check_name


def list_aliases(name: str) -> Request[list[Alias]]:
    """Every alias of one adapter."""

    def read(response: httpx2.Response) -> list[Alias]:
        return read_body(response, AliasList).aliases

    return Request("GET", f"/v1/adapters/{check_name(name)}/aliases", read)


def alias_history(name: str, alias: str) -> Request[list[AliasChange]]:
    """The changes of an alias."""

    def read(response: httpx2.Response) -> list[AliasChange]:
        return read_body(response, AliasHistory).changes

    return Request("GET", f"{_alias(name, alias)}/history", read)


def set_alias(name: str, alias: str, version: int | Mapping[int, float]) -> Request[Alias]:
    """Point an alias to a version, or to several with the share of requests that each gets."""
    meant = {"version": version} if isinstance(version, int) else {"versions": version}
    return Request("PUT", _alias(name, alias), reader(Alias), json=to_json(AliasRequest, meant))


def rollback_alias(name: str, alias: str) -> Request[Alias]:
    """Undo the last change of an alias. Not retried, because a second request goes two steps back."""
    return Request("POST", f"{_alias(name, alias)}/rollback", reader(Alias), retried=False)


def delete_alias(name: str, alias: str) -> Request[None]:
    """Delete an alias."""
    return Request("DELETE", _alias(name, alias), raise_for_error)


def _alias(name: str, alias: str) -> str:
    return f"/v1/adapters/{check_name(name)}/aliases/{check_alias(alias)}"
