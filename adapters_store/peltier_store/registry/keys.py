"""API keys. The registry stores only digests; the secrets stay in the server."""

from collections.abc import Iterable
from dataclasses import fields

from sqlalchemy import Row, Select, insert, select, update

from peltier_store.registry.errors import InvalidRecord, KeyUnknown, RegistryConflict
from peltier_store.registry.records import SCOPES, Key, check_text
from peltier_store.registry.tables import KeyRow
from peltier_store.registry.tenants import require_quotas
from peltier_store.registry.transactions import WriteTransaction


def create_key(writing: WriteTransaction, key: Key) -> Key:
    """Records a key that the server has generated."""
    check_text("note", key.note)
    check_scopes(key.scopes)
    require_quotas(writing.connection, key.tenant)
    taken = writing.connection.execute(select(KeyRow.prefix).where(KeyRow.prefix == key.prefix))
    if taken.first() is not None:
        raise RegistryConflict(f"a key with the prefix {key.prefix!r} exists already")
    row = insert(KeyRow).values(
        prefix=key.prefix,
        tenant=key.tenant,
        digest=key.digest,
        scopes=sorted(key.scopes),
        note=key.note,
        created_at=key.created_at,
        created_by=key.created_by,
        expires_at=key.expires_at,
        revision=writing.revision,
    )
    writing.connection.execute(row)
    expires = None if key.expires_at is None else key.expires_at.isoformat()
    writing.audit(key.tenant, "create_key", key.prefix, scopes=sorted(key.scopes), note=key.note, expires_at=expires)
    return key


def revoke_key(writing: WriteTransaction, prefix: str) -> Key:
    """Revokes a key permanently; a revoked key stays unchanged."""
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
    """The key in a row of `select_keys`."""
    values = dict(row._mapping)
    return Key(**{**values, "scopes": frozenset(values["scopes"])})
