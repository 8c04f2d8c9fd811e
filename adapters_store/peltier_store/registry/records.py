"""The registry's records, which are frozen values read in one transaction, and the rules for their names and texts."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import get_args

from peltier_adapters.artifact.manifest import NAME_PATTERN
from peltier_client.protocol.adapters import AdapterPin
from peltier_client.protocol.administration import Scope, TenantInfo

from peltier_store.registry.errors import InvalidRecord

# Scopes are independent of each other: a key has one or more.
SCOPES = frozenset(get_args(Scope))


@dataclass(frozen=True)
class VersionRecord:
    """One published version of a tenant's adapter. Its number, bytes and manifest never change; its marks may.

    A version with `deleted_at` cannot be used, but it can be undeleted. A snapshot may leave `manifest` empty.
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
class AliasRecord:
    """A name for one version, or for several with the share of requests that each gets; the shares sum to 1. `id` is
    that of the change that made it so."""

    alias: str
    split: Mapping[int, float]
    created_at: datetime
    created_by: str
    id: int


@dataclass(frozen=True)
class AdapterRecord:
    """One adapter with its aliases and every version that is not purged, by number."""

    tenant: str
    name: str
    is_public: bool
    versions: tuple[VersionRecord, ...]
    aliases: tuple[AliasRecord, ...]
    pin: AdapterPin | None = None


@dataclass(frozen=True)
class Key:
    """An API key without its secret. `digest` is the HMAC of the whole key."""

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
class AuditFilter:
    """The wanted entries of the audit log; None is every value. `since` is included, `until` is not."""

    tenant: str | None = None
    actor: str | None = None
    action: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True)
class QuotaUsage:
    """What counts for a tenant's quotas in the registry: adapters with a live version, and bytes of versions that are
    not purged and of their reports, of files, and of what trainings keep; trainings that have not ended, and the
    minutes of workers in the last 24 hours, in whole hours, which the extension of trainings adds."""

    num_adapters: int
    stored_bytes: int
    num_trainings: int = 0
    training_minutes: float = 0.0


@dataclass(frozen=True)
class Reservation:
    """A claim on bytes that an upload will publish: collectors keep them until `expires_at`."""

    token: str
    digest: str
    expires_at: datetime


@dataclass(frozen=True)
class Position:
    """A state of the registry: the number and the random id of its last change.

    After a crash, a failover or a restore the database may reach the same number by another change. So it still has
    everything that was read at a position only if its change of that number has that id.
    """

    revision: int
    change_id: str


@dataclass(frozen=True)
class RegistrySnapshot:
    """Every adapter, tenant and key that changed since an earlier position, complete, as of `position`.

    With `is_whole` there are no others.
    """

    position: Position
    adapters: tuple[AdapterRecord, ...]
    tenants: tuple[TenantInfo, ...]
    keys: tuple[Key, ...] = ()
    is_whole: bool = False


def check_name(kind: str, name: str) -> None:
    """Raises InvalidRecord unless `name` is a valid name of a tenant or an alias; `kind` says which."""
    if re.fullmatch(NAME_PATTERN, name) is None:
        raise InvalidRecord(
            f"the {kind} {name!r} is invalid: it must have at most 63 lower-case letters, digits, '.', '_' or '-', and "
            "begin with a letter or digit"
        )


def check_text(kind: str, text: str) -> None:
    """Raises InvalidRecord for text that one of the databases cannot store."""
    if re.search("[\0\ud800-\udfff]", text) is not None:
        raise InvalidRecord(f"the {kind} {text!r} contains a zero byte or a lone surrogate")
