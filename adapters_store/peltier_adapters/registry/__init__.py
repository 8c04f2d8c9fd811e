"""Who owns which adapter versions: tenants, keys, adapters, aliases and the record of who did what."""

from peltier_adapters.registry.errors import (
    AdapterUnknown,
    BlobBusy,
    InvalidRecord,
    KeyUnknown,
    NotRegistered,
    QuotaReached,
    RegistryConflict,
    RegistryError,
    TenantUnknown,
    VersionUnknown,
)
from peltier_adapters.registry.records import (
    SCOPES,
    AdapterRecord,
    Alias,
    AliasChange,
    AuditEntry,
    Key,
    Quotas,
    Reservation,
    Snapshot,
    Tenant,
    Version,
)
from peltier_adapters.registry.registry import Registry

__all__ = [
    "SCOPES",
    "AdapterRecord",
    "AdapterUnknown",
    "Alias",
    "AliasChange",
    "AuditEntry",
    "BlobBusy",
    "InvalidRecord",
    "Key",
    "KeyUnknown",
    "NotRegistered",
    "QuotaReached",
    "Quotas",
    "Registry",
    "RegistryConflict",
    "RegistryError",
    "Reservation",
    "Snapshot",
    "Tenant",
    "TenantUnknown",
    "Version",
    "VersionUnknown",
]
