"""Tenants and their keys in memory, as the registry has them: no request waits for the database to be let in."""

import logging
import time
from dataclasses import dataclass
from datetime import datetime
from heapq import nsmallest
from typing import cast

from peltier_client.errors import NotFound, Unauthorized
from peltier_client.protocol import Scope
from peltier_store.registry import Key, Quotas, Snapshot, Tenant

from peltier_server.auth.caller import Caller
from peltier_server.auth.credentials import Credentials, prefix_of

logger = logging.getLogger(__name__)

_NO_QUOTAS = Quotas()


@dataclass(frozen=True)
class _Held:
    """A key, ready to be asked for at every request."""

    key: Key
    caller: Caller
    expires_at: float | None

    @classmethod
    def of(cls, key: Key) -> "_Held":
        scopes = frozenset(cast(Scope, scope) for scope in key.scopes)
        expires_at = None if key.expires_at is None else key.expires_at.timestamp()
        return cls(key, Caller(key.tenant, scopes, f"key:{key.prefix}"), expires_at)

    @property
    def has_expired(self) -> bool:
        return self.expires_at is not None and self.expires_at <= time.time()

    @property
    def is_live(self) -> bool:
        return self.key.revoked_at is None and not self.has_expired


class Keyring:
    """Every tenant and key, once it is unlocked. `apply` is how it follows the registry; belongs to the event loop."""

    def __init__(self) -> None:
        self._tenants: dict[str, Tenant] = {}
        self._keys: dict[str, _Held] = {}
        self._revision = -1
        self._credentials: Credentials | None = None
        self._nobody = ""
        self._has_warned = False

    def unlock(self, credentials: Credentials) -> None:
        """From now on keys can be made and compared."""
        self._credentials = credentials
        # What a key is compared with that no key has the prefix of, so that both take as long.
        self._nobody = credentials.issue().digest

    @property
    def credentials(self) -> Credentials:
        """What makes keys."""
        assert self._credentials is not None, "nobody is let in before the keyring is unlocked"
        return self._credentials

    def apply(self, snapshot: Snapshot) -> None:
        """Takes over the tenants and keys that have changed; a snapshot from before is left alone."""
        if snapshot.revision < self._revision:
            return
        self._revision = snapshot.revision
        self._tenants.update((tenant.name, tenant) for tenant in snapshot.tenants)
        # Keys are never deleted and never change hands: what was revoked stays, as such.
        self._keys.update((key.prefix, _Held.of(key)) for key in snapshot.keys)

    @property
    def is_known(self) -> bool:
        """The registry has been read."""
        return self._revision >= 0

    @property
    def is_empty(self) -> bool:
        """No key has ever been made. One that was revoked or has expired still closes the door."""
        return not self._keys

    def is_last_admin(self, prefix: str) -> bool:
        """Without that key there would be none that can make keys."""
        admins = [held.key for held in self._keys.values() if "admin" in held.key.scopes and held.is_live]
        return [key.prefix for key in admins] == [prefix]

    def caller(self, text: str) -> Caller:
        """Whose key this is. Raises `Unauthorized`; only who holds a key is told that it was once a right one."""
        held = self._keys.get(prefix_of(text) or "")
        same = self.credentials.matches(text, held.key.digest if held is not None else self._nobody)
        if held is not None and not same:
            self._warn_of_secret(held.key.prefix)
        if held is None or not same:
            raise Unauthorized("the API key is not one of this server's")
        if held.key.revoked_at is not None:
            raise Unauthorized(f"the API key {held.key.prefix} was revoked")
        if held.has_expired:
            raise Unauthorized(f"the API key {held.key.prefix} expired")
        return held.caller

    def _warn_of_secret(self, prefix: str) -> None:
        # Once, because anyone can send what looks like a key.
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "key %s was sent and does not fit: it is forged, "
                "or this server's PELTIER_SECRET is not the one that it was made under",
                prefix,
            )

    def has_tenant(self, name: str) -> bool:
        """Whether there is such a tenant."""
        return name in self._tenants

    def tenant(self, name: str) -> Tenant:
        """One tenant, or `NotFound`."""
        if name not in self._tenants:
            raise NotFound(f"tenant {name!r} does not exist")
        return self._tenants[name]

    def quotas(self, tenant: str) -> Quotas:
        """What the tenant may use."""
        known = self._tenants.get(tenant)
        return _NO_QUOTAS if known is None else known.quotas

    def tenants(self, *, after: str, limit: int) -> list[Tenant]:
        """At most `limit` tenants whose names follow `after`, in order."""
        return [self._tenants[name] for name in nsmallest(limit, (name for name in self._tenants if name > after))]

    def list_keys(self, tenant: str | None, *, after: str, limit: int) -> list[Key]:
        """At most `limit` keys of the tenant, or of all, that follow the one with the prefix `after`; the oldest first,
        also those that open nothing any more. An empty `after` is the start; raises `NotFound` for one of no key."""
        if after and after not in self._keys:
            raise NotFound(f"key {after!r} does not exist")
        begin = _age(self._keys[after].key) if after else None
        keys = (held.key for held in self._keys.values() if tenant in (None, held.key.tenant))
        return nsmallest(limit, (key for key in keys if begin is None or _age(key) > begin), key=_age)


def _age(key: Key) -> tuple[datetime, str]:
    return key.created_at, key.prefix
