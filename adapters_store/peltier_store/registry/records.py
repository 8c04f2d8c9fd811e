"""What the registry hands out: frozen values, read in one transaction."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

# Independent of each other: a key has one or more.
SCOPES = frozenset({"predict", "publish", "admin", "metrics"})
# Of tenants' weights.
MIN_WEIGHT, MAX_WEIGHT = 0.01, 100.0


@dataclass(frozen=True)
class Version:
    """One published version of a tenant's adapter. Its number, bytes and manifest never change; its marks may.

    One with `deleted_at` is gone for everyone and can still be undeleted. A snapshot may leave `manifest` empty.
    """

    tenant: str
    name: str
    number: int
    digest: str
    size_bytes: int
    preset: str
    manifest: str
    created_at: datetime
    created_by: str = ""
    deprecated_at: datetime | None = None
    deprecation: str | None = None
    deleted_at: datetime | None = None


@dataclass(frozen=True)
class Alias:
    """A name for one version, or for several with the share of requests that each gets; the shares sum to 1."""

    alias: str
    split: Mapping[int, float]
    created_at: datetime
    created_by: str


@dataclass(frozen=True)
class AliasChange:
    """One line of an alias's history; no split: the alias was deleted. `id` grows with time."""

    id: int
    split: Mapping[int, float] | None
    created_at: datetime
    created_by: str


@dataclass(frozen=True)
class AdapterRecord:
    """The whole of one adapter: every version that is not purged, deleted ones too, by number, and its aliases."""

    tenant: str
    name: str
    is_public: bool
    versions: tuple[Version, ...]
    aliases: tuple[Alias, ...]


@dataclass(frozen=True)
class Quotas:
    """What a tenant may use; None is no limit. `weight` is its share of a busy server beside other tenants'."""

    requests_per_second: float | None = None
    tokens_per_second: float | None = None
    max_concurrent_requests: int | None = None
    max_stored_bytes: int | None = None
    max_adapters: int | None = None
    weight: float = 1.0


@dataclass(frozen=True)
class Key:
    """An API key without its secret: what it opens and for how long. `digest` is the HMAC of the whole key."""

    prefix: str
    tenant: str
    digest: str = field(repr=False)
    scopes: frozenset[str]
    note: str
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True)
class Tenant:
    """Who owns adapters and is accounted for."""

    name: str
    created_at: datetime
    quotas: Quotas


@dataclass(frozen=True)
class AuditEntry:
    """Who did what. `subject` names it (`sst2@3`), `detail` says the rest; `id` grows with time."""

    id: int
    at: datetime
    tenant: str
    actor: str
    action: str
    subject: str
    detail: Mapping[str, object]


@dataclass(frozen=True)
class Snapshot:
    """What changed between two revisions: each adapter, tenant and key as it is at `revision`, whole."""

    revision: int
    adapters: tuple[AdapterRecord, ...]
    tenants: tuple[Tenant, ...]
    keys: tuple[Key, ...] = ()


@dataclass(frozen=True)
class Reservation:
    """A claim on bytes that are about to be stored and published: until `expires_at` they are not collected."""

    token: str
    digest: str
    expires_at: datetime
