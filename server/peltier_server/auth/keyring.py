"""Callers, and the tenants and keys that name them: in memory, as in the registry, so that no request waits for the
database to be authenticated."""

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from heapq import nsmallest
from typing import cast, get_args

from peltier_client.errors import Forbidden, NotFound, Unauthorized
from peltier_client.protocol.administration import Scope, TenantInfo, TenantQuotas
from peltier_store.registry.records import Key, RegistrySnapshot

from peltier_server.auth.credentials import Credentials, prefix_of

# The tenant that always exists.
TENANT = "default"
ALL_SCOPES: frozenset[Scope] = frozenset(get_args(Scope))
# An admin can create any key, and could read metrics before metrics had a scope of their own.
_METRICS, _ADMIN = "metrics", "admin"

logger = logging.getLogger(__name__)

_NO_QUOTAS = TenantQuotas()


@dataclass(frozen=True)
class Caller:
    """Acts in `tenant` and may do what `scopes` allow; `actor` is its name in the audit log."""

    tenant: str
    scopes: frozenset[Scope]
    actor: str

    def may(self, scope: Scope) -> bool:
        """Whether `require` permits this scope."""
        try:
            self.require(scope)
        except Forbidden:
            return False
        return True

    def require_one(self, scopes: Iterable[Scope]) -> None:
        """Raises `Forbidden` if the caller has none of `scopes`."""
        if not self.scopes.intersection(scopes):
            wanted, held = " or ".join(map(repr, sorted(scopes))), ", ".join(sorted(self.scopes)) or "none"
            raise Forbidden(f"this needs the scope {wanted}; the key's scopes are: {held}")

    def require(self, scope: Scope) -> None:
        """Raises `Forbidden` if the caller lacks `scope`, or if one tenant asks for the metrics of all."""
        if scope == _METRICS and _ADMIN in self.scopes:
            return
        if scope not in self.scopes:
            held = ", ".join(sorted(self.scopes)) or "none"
            raise Forbidden(f"this needs the scope {scope!r}; the key's scopes are: {held}")
        if scope == _METRICS and (problem := metrics_problem(self.tenant, self.scopes)):
            raise Forbidden(problem)


def metrics_problem(tenant: str, scopes: Collection[Scope]) -> str | None:
    """Why a key with these scopes may not read the metrics, which name every tenant and the adapters in use; None if it
    may, or has no such scope."""
    if _METRICS not in scopes or _ADMIN in scopes or tenant == TENANT:
        return None
    return f"the scope 'metrics' shows all tenants' adapters, so its key is of the tenant {TENANT!r}, not {tenant!r}"


# On a server that asks for no key, every caller is its operator.
LOCAL = Caller(TENANT, ALL_SCOPES, "local")
# The caller with the admin key of the settings, which is not in the registry.
OPERATOR = Caller(TENANT, ALL_SCOPES, "operator")
# The caller with the metrics key of the settings.
MONITOR = Caller(TENANT, frozenset({"metrics"}), "monitor")


@dataclass(frozen=True)
class _KnownKey:
    """A key with its caller, prepared for the check at every request."""

    key: Key
    caller: Caller

    @classmethod
    def of(cls, key: Key) -> "_KnownKey":
        scopes = frozenset(cast(Scope, scope) for scope in key.scopes)
        return cls(key, Caller(key.tenant, scopes, f"key:{key.prefix}"))

    def has_expired(self, now: datetime) -> bool:
        return self.key.expires_at is not None and self.key.expires_at <= now

    def is_live(self, now: datetime) -> bool:
        return self.key.revoked_at is None and not self.has_expired(now)


class Keyring:
    """Holds every tenant and key. `unlock` must precede the first check of a key. It belongs to the event loop."""

    def __init__(self) -> None:
        # Once the registry is open, its clock, so that a key expires at the same moment at every replica.
        self.now: Callable[[], datetime] = partial(datetime.now, UTC)
        self._tenants: dict[str, TenantInfo] = {}
        self._keys: dict[str, _KnownKey] = {}
        # Whether the registry has been read.
        self.is_known = False
        self._credentials: Credentials | None = None
        self._nobody = ""
        self._has_warned = False

    def unlock(self, credentials: Credentials) -> None:
        """Sets the credentials that create and compare keys."""
        self._credentials = credentials
        # The digest for the comparison when no key has the prefix, so that both cases take the same time.
        self._nobody = credentials.issue().digest

    @property
    def credentials(self) -> Credentials:
        """The credentials that create and compare keys."""
        assert self._credentials is not None, "nobody is let in before the keyring is unlocked"
        return self._credentials

    def apply(self, snapshot: RegistrySnapshot) -> None:
        """Takes over the tenants and keys that have changed, or of a whole snapshot all that there are."""
        tenants = {tenant.name: tenant for tenant in snapshot.tenants}
        # Keys are never deleted and never change their tenant. A revoked key stays, marked as revoked.
        keys = {key.prefix: _KnownKey.of(key) for key in snapshot.keys}
        if snapshot.is_whole:
            self._tenants, self._keys = tenants, keys
        else:
            self._tenants.update(tenants)
            self._keys.update(keys)
        self.is_known = True

    @property
    def is_empty(self) -> bool:
        """Whether no key has ever been created. A revoked or expired key counts: the server stays closed."""
        return not self._keys

    def is_last_admin(self, prefix: str) -> bool:
        """Whether the key with this prefix is the only live one with the scope `admin`, and so the only one that can
        create keys.
        """
        admins = [held.key for held in self._keys.values() if "admin" in held.key.scopes and held.is_live(self.now())]
        return [key.prefix for key in admins] == [prefix]

    def caller(self, text: str) -> Caller:
        """The caller with the key `text`. Raises `Unauthorized`; only the whole key gets the message that it was
        revoked or has expired.
        """
        held = self._keys.get(prefix_of(text) or "")
        same = self.credentials.matches(text, held.key.digest if held is not None else self._nobody)
        if held is not None and not same:
            self._warn_of_secret(held.key.prefix)
        if held is None or not same:
            raise Unauthorized("the API key is not one of this server's")
        if held.key.revoked_at is not None:
            raise Unauthorized(f"the API key {held.key.prefix} was revoked")
        if held.has_expired(self.now()):
            raise Unauthorized(f"the API key {held.key.prefix} expired")
        return held.caller

    def _warn_of_secret(self, prefix: str) -> None:
        # The warning is logged once, because any caller can send text in the form of a key.
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "key %s was sent and does not fit: it is forged, "
                "or this server's PELTIER_SECRET is not the one that it was made under",
                prefix,
            )

    def has_tenant(self, name: str) -> bool:
        """Whether the tenant exists."""
        return name in self._tenants

    def tenant(self, name: str) -> TenantInfo:
        """The tenant with this name. Raises `NotFound` if it does not exist."""
        if name not in self._tenants:
            raise NotFound(f"tenant {name!r} does not exist")
        return self._tenants[name]

    def quotas(self, tenant: str) -> TenantQuotas:
        """The quotas of the tenant; no quotas if it does not exist."""
        known = self._tenants.get(tenant)
        return _NO_QUOTAS if known is None else known.quotas

    def tenants(self, *, after: str, limit: int) -> list[TenantInfo]:
        """At most `limit` tenants whose names follow `after`, in order of name."""
        return [self._tenants[name] for name in nsmallest(limit, (name for name in self._tenants if name > after))]

    def list_keys(self, tenant: str | None, *, after: str, limit: int) -> list[Key]:
        """At most `limit` keys of the tenant, or of all tenants, that follow the key with the prefix `after`, oldest
        first.

        Revoked and expired keys are included. An empty `after` means the start. Raises `NotFound` if no key has that
        prefix.
        """
        if after and after not in self._keys:
            raise NotFound(f"key {after!r} does not exist")
        begin = _age(self._keys[after].key) if after else None
        keys = (held.key for held in self._keys.values() if tenant in (None, held.key.tenant))
        return nsmallest(limit, (key for key in keys if begin is None or _age(key) > begin), key=_age)


def _age(key: Key) -> tuple[datetime, str]:
    return key.created_at, key.prefix
