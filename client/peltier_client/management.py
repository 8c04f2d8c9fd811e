"""What changes which version answers: aliases, deprecation, deletion and its undoing; and the record of who did it."""

from collections.abc import Mapping

import httpx2

from peltier_client.errors import InvalidInput
from peltier_client.exchange import Request, page_query, raise_for_error, read_body, reader, to_json
from peltier_client.protocol import (
    Adapter,
    AdapterChange,
    AdapterVersion,
    Alias,
    AliasChange,
    AliasHistory,
    AliasList,
    AliasRequest,
    AuditPage,
    DeprecationRequest,
    TaskReference,
    check_alias,
    check_name,
)


def aliases(name: str) -> Request[list[Alias]]:
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


def delete(task: str) -> Request[None]:
    """An adapter with all its versions (`name`), or one version of it (`name@3`)."""
    reference = TaskReference.parse(task)
    if reference.tenant is not None or reference.alias is not None:
        raise InvalidInput(f"task {task!r} cannot be deleted: name an adapter of your own, or one version as name@3")
    if reference.version is not None:
        return Request("DELETE", _version(task), raise_for_error)
    return Request("DELETE", f"/v1/adapters/{reference.name}", raise_for_error)


def undelete(task: str) -> Request[AdapterVersion]:
    """A deleted version (`name@3`) that is to come back."""
    return Request("POST", f"{_version(task)}/undelete", reader(AdapterVersion))


def deprecate(task: str, reason: str | None) -> Request[AdapterVersion]:
    """A version (`name@3`) to advise against, or with no reason no longer."""
    json = to_json(DeprecationRequest, {"reason": reason})
    return Request("POST", f"{_version(task)}/deprecate", reader(AdapterVersion), json=json)


def set_public(name: str, public: bool) -> Request[Adapter]:
    """An adapter that other tenants are to be able to use, or no longer."""
    json = to_json(AdapterChange, {"public": public})
    return Request("PATCH", f"/v1/adapters/{check_name(name)}", reader(Adapter), json=json)


def audit(tenant: str | None, cursor: str | None = None) -> Request[AuditPage]:
    """The page of the audit log that `cursor` points to, the newest for None; of all tenants or of one."""
    own = {"tenant": check_name(tenant, "tenant")} if tenant is not None else {}
    return Request("GET", "/v1/audit", reader(AuditPage), query=page_query(cursor) | own)


def _alias(name: str, alias: str) -> str:
    return f"/v1/adapters/{check_name(name)}/aliases/{check_alias(alias)}"


def _version(task: str) -> str:
    reference = TaskReference.parse(task)
    if reference.tenant is not None or reference.version is None:
        raise InvalidInput(f"task {task!r} names no version of an adapter of your own: write it as name@3")
    return f"/v1/adapters/{reference.name}/versions/{reference.version}"
