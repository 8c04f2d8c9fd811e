"""Tenants and their quotas, and API keys. The registry stores only digests of keys; the secrets stay in the server."""

from collections.abc import Iterable
from dataclasses import asdict, fields
from functools import reduce
from operator import add

from peltier_client.protocol.administration import TenantInfo, TenantQuotas
from sqlalchemy import Connection, FromClause, Row, Select, bindparam, func, insert, select, update

from peltier_store.registry.errors import InvalidRecord, KeyUnknown, QuotaReached, RegistryConflict, TenantUnknown
from peltier_store.registry.lookup import LIVE
from peltier_store.registry.records import SCOPES, Key, QuotaUsage, check_name, check_text
from peltier_store.registry.tables import IS_STORED, AdapterRow, Base, KeyRow, TenantRow, VersionRow
from peltier_store.registry.transactions import WriteTransaction

_QUOTAS = tuple(TenantQuotas.model_fields)


def create_tenant(writing: WriteTransaction, name: str, quotas: TenantQuotas) -> TenantInfo:
    check_name("tenant", name)
    if find_quotas(writing.connection, name) is not None:
        raise RegistryConflict(f"tenant {name!r} exists already")
    row = insert(TenantRow).values(name=name, created_at=writing.at, revision=writing.revision, **quotas.model_dump())
    writing.connection.execute(row)
    writing.audit(name, "create_tenant", name, **quotas.model_dump())
    return TenantInfo(name=name, created_at=writing.at, quotas=quotas)


def update_tenant(writing: WriteTransaction, name: str, quotas: TenantQuotas) -> None:
    require_quotas(writing.connection, name)
    writing.connection.execute(update(TenantRow).where(TenantRow.name == name).values(**quotas.model_dump()))
    writing.stamp_tenant(name)
    writing.audit(name, "update_tenant", name, **quotas.model_dump())


def find_quotas(connection: Connection, name: str) -> TenantQuotas | None:
    row = connection.execute(_ONE, {"name": name}).one_or_none()
    return None if row is None else _quotas(row)


def require_quotas(connection: Connection, name: str) -> TenantQuotas:
    """The quotas of the tenant; raises TenantUnknown."""
    quotas = find_quotas(connection, name)
    if quotas is None:
        raise TenantUnknown(f"tenant {name!r} does not exist")
    return quotas


def select_tenants() -> Select[*tuple[object, ...]]:
    """Selects every tenant, by name, for `tenant_of`."""
    columns = [getattr(TenantRow, name) for name in ("name", "created_at", *_QUOTAS)]
    return select(*columns).order_by(TenantRow.name)


_ONE = select_tenants().where(TenantRow.name == bindparam("name"))


def tenant_of(row: Row[*tuple[object, ...]]) -> TenantInfo:
    return TenantInfo(name=row.name, created_at=row.created_at, quotas=_quotas(row))


def _quotas(row: Row[*tuple[object, ...]]) -> TenantQuotas:
    """As they are stored: a quota out of range, written by hand, keeps no server from starting or from replacing it."""
    return TenantQuotas.model_construct(**{name: row._mapping[name] for name in _QUOTAS})


def require_room_for_adapter(connection: Connection, quotas: TenantQuotas, tenant: str, name: str) -> None:
    """Raises QuotaReached if `name` would exceed the maximum number of live adapters."""
    if quotas.max_adapters is None:
        return
    names = _live_names(connection, tenant)
    if name not in names and len(names) >= quotas.max_adapters:
        raise QuotaReached(
            f"tenant {tenant!r} has {len(names)} adapters and may have {quotas.max_adapters}; delete one first"
        )


def require_room_for_bytes(connection: Connection, quotas: TenantQuotas, tenant: str, size_bytes: int) -> None:
    """Raises QuotaReached if so many bytes more would exceed the tenant's quota."""
    if quotas.max_stored_bytes is None or size_bytes <= 0:
        return
    num_bytes = _stored_bytes(connection, tenant)
    if num_bytes + size_bytes > quotas.max_stored_bytes:
        raise QuotaReached(
            f"tenant {tenant!r} has stored {num_bytes} bytes and may store {quotas.max_stored_bytes}, so "
            f"{size_bytes} more do not fit; deleted versions count until their grace period is over"
        )


def read_usage(connection: Connection, tenant: str) -> QuotaUsage:
    """What counts for the tenant's quotas. Raises TenantUnknown."""
    require_quotas(connection, tenant)
    return QuotaUsage(
        num_adapters=len(_live_names(connection, tenant)),
        stored_bytes=_stored_bytes(connection, tenant),
    )


def _live_names(connection: Connection, tenant: str) -> set[str]:
    live = select(VersionRow.number).where(VersionRow.adapter_id == AdapterRow.id, LIVE).exists()
    return set(connection.execute(select(AdapterRow.name).where(AdapterRow.tenant == tenant, live)).scalars())


def _stored_bytes(connection: Connection, tenant: str) -> int:
    total = 0
    for table in Base.metadata.tables.values():
        if not (stored := [column for column in table.columns if IS_STORED in column.info]):
            continue
        joined: FromClause = table
        owner = table
        while "tenant" not in owner.columns:
            (owner,) = {key.column.table for key in owner.foreign_keys}
            joined = joined.join(owner)
        summed = select(func.coalesce(func.sum(reduce(add, stored)), 0)).select_from(joined)
        total += int(connection.execute(summed.where(owner.columns.tenant == tenant)).scalar_one())
    return total


def create_key(writing: WriteTransaction, key: Key) -> Key:
    check_text("note", key.note)
    check_scopes(key.scopes)
    require_quotas(writing.connection, key.tenant)
    taken = writing.connection.execute(select(KeyRow.prefix).where(KeyRow.prefix == key.prefix))
    if taken.first() is not None:
        raise RegistryConflict(f"a key with the prefix {key.prefix!r} exists already")
    row = asdict(key) | {"scopes": sorted(key.scopes), "revision": writing.revision}
    writing.connection.execute(insert(KeyRow).values(row))
    expires = None if key.expires_at is None else key.expires_at.isoformat()
    writing.audit(key.tenant, "create_key", key.prefix, scopes=sorted(key.scopes), note=key.note, expires_at=expires)
    return key


def revoke_key(writing: WriteTransaction, prefix: str) -> Key:
    found = writing.connection.execute(select_keys().where(KeyRow.prefix == prefix)).one_or_none()
    if found is None:
        raise KeyUnknown(f"no key has the prefix {prefix!r}")
    if found.revoked_at is not None:
        return key_of(found)
    changed = update(KeyRow).where(KeyRow.prefix == prefix)
    writing.connection.execute(changed.values(revoked_at=writing.at, revision=writing.revision))
    writing.audit(found.tenant, "revoke_key", prefix)
    return key_of(writing.connection.execute(select_keys().where(KeyRow.prefix == prefix)).one())


def check_scopes(scopes: Iterable[str]) -> None:
    """Raises InvalidRecord unless these are one or more known scopes."""
    given = set(scopes)
    if not given or given - SCOPES:
        raise InvalidRecord(f"the scopes {sorted(given)} are invalid: give one or more of {', '.join(sorted(SCOPES))}")


def select_keys() -> Select[*tuple[object, ...]]:
    """Selects every key, oldest first, for `key_of`."""
    columns = (getattr(KeyRow, field.name) for field in fields(Key))
    return select(*columns).order_by(KeyRow.created_at, KeyRow.prefix)


def key_of(row: Row[*tuple[object, ...]]) -> Key:
    values = dict(row._mapping)
    return Key(**{**values, "scopes": frozenset(values["scopes"])})
