"""Requests about aliases: list, set, roll back, delete, and what each has meant."""

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
    """What an alias has meant."""

    def read(response: httpx2.Response) -> list[AliasChange]:
        return read_body(response, AliasHistory).changes

    return Request("GET", f"{_alias(name, alias)}/history", read)


def set_alias(name: str, alias: str, version: int | Mapping[int, float]) -> Request[Alias]:
    """An alias that is to mean a version, or several with the share of requests that each gets."""
    meant = {"version": version} if isinstance(version, int) else {"versions": version}
    return Request("PUT", _alias(name, alias), reader(Alias), json=to_json(AliasRequest, meant))


def rollback_alias(name: str, alias: str) -> Request[Alias]:
    """An alias that is to mean again what it meant before. Asked once: a second time goes two steps back."""
    return Request("POST", f"{_alias(name, alias)}/rollback", reader(Alias), retried=False)


def delete_alias(name: str, alias: str) -> Request[None]:
    """An alias that is to mean nothing."""
    return Request("DELETE", _alias(name, alias), raise_for_error)


def _alias(name: str, alias: str) -> str:
    return f"/v1/adapters/{check_name(name)}/aliases/{check_alias(alias)}"
