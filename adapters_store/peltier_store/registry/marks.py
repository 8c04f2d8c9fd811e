"""Marks of versions and adapters: deprecated, public. They change without a new version."""

from dataclasses import replace
from datetime import datetime

from sqlalchemy import select, update

from peltier_store.registry.lookup import find_version, require_adapter, require_live
from peltier_store.registry.records import Version
from peltier_store.registry.rules import check_text
from peltier_store.registry.tables import AdapterRow, VersionRow
from peltier_store.registry.transactions import WriteTransaction


def deprecate(writing: WriteTransaction, tenant: str, name: str, number: int, reason: str | None) -> Version:
    """Marks a live version as deprecated; a `reason` of None removes the mark."""
    check_text("reason", reason or "")
    adapter_id = require_adapter(writing.connection, tenant, name)
    require_live(writing.connection, adapter_id, name, number)
    version = find_version(writing.connection, tenant, name, number)
    assert version is not None
    deprecated_at = None if reason is None else writing.at
    mark(writing, version, deprecated_at=deprecated_at, deprecation=reason)
    writing.audit(tenant, "deprecate", f"{name}@{number}", reason=reason)
    return replace(version, deprecated_at=deprecated_at, deprecation=reason)


def set_public(writing: WriteTransaction, tenant: str, name: str, public: bool) -> None:
    """Allows or forbids other tenants to use a live adapter."""
    adapter_id = require_adapter(writing.connection, tenant, name)
    changed = update(AdapterRow).where(AdapterRow.id == adapter_id)
    writing.connection.execute(changed.values(is_public=public, revision=writing.revision))
    writing.audit(tenant, "set_public", name, public=public)


def mark(writing: WriteTransaction, version: Version, **marks: datetime | str | int | None) -> None:
    """Sets columns of a version's row."""
    owner = select(AdapterRow.id).where(AdapterRow.tenant == version.tenant, AdapterRow.name == version.name)
    adapter_id = writing.connection.execute(owner).scalar_one()
    chosen = update(VersionRow).where(VersionRow.adapter_id == adapter_id, VersionRow.number == version.number)
    writing.connection.execute(chosen.values(**marks))
    writing.stamp_adapter(adapter_id)
