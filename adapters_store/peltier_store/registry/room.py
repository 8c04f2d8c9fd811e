"""Checks a tenant's quotas of adapters and of stored bytes.

Deleted versions count until they are purged. Each version counts all of its bytes, even if several share one blob,
because each has its own manifest in the registry, which may be most of the bytes.
"""

from sqlalchemy import Connection, func, select

from peltier_store.registry.errors import QuotaReached
from peltier_store.registry.lookup import LIVE
from peltier_store.registry.records import Quotas, StorageUsage, Version
from peltier_store.registry.tables import AdapterRow, VersionRow
from peltier_store.registry.tenants import require_quotas


def require_room_for_adapter(connection: Connection, quotas: Quotas, tenant: str, name: str) -> None:
    """Raises QuotaReached if `name` would exceed the maximum number of live adapters."""
    if quotas.max_adapters is None:
        return
    names = _live_names(connection, tenant)
    if name not in names and len(names) >= quotas.max_adapters:
        raise QuotaReached(
            f"tenant {tenant!r} has {len(names)} adapters and may have {quotas.max_adapters}; delete one first"
        )


def require_room_for_bytes(connection: Connection, quotas: Quotas, draft: Version) -> None:
    """Raises QuotaReached if the bytes of `draft` would exceed the tenant's quota."""
    if quotas.max_stored_bytes is None:
        return
    num_bytes = _stored_bytes(connection, draft.tenant)
    if num_bytes + draft.size_bytes > quotas.max_stored_bytes:
        raise QuotaReached(
            f"tenant {draft.tenant!r} has stored {num_bytes} bytes and may store {quotas.max_stored_bytes}, so "
            f"{draft.size_bytes} more do not fit; deleted versions count until their grace period is over"
        )


def read_usage(connection: Connection, tenant: str) -> StorageUsage:
    """What counts for the tenant's quotas of storage. Raises TenantUnknown."""
    require_quotas(connection, tenant)
    return StorageUsage(len(_live_names(connection, tenant)), _stored_bytes(connection, tenant))


def _live_names(connection: Connection, tenant: str) -> set[str]:
    live = select(VersionRow.number).where(VersionRow.adapter_id == AdapterRow.id, LIVE).exists()
    return set(connection.execute(select(AdapterRow.name).where(AdapterRow.tenant == tenant, live)).scalars())


def _stored_bytes(connection: Connection, tenant: str) -> int:
    owned = select(func.coalesce(func.sum(VersionRow.size_bytes), 0)).join(AdapterRow)
    return int(connection.execute(owned.where(AdapterRow.tenant == tenant)).scalar_one())
