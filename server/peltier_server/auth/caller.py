"""The caller: a tenant's key, the operator, or any caller on loopback while there are no keys."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import get_args

from peltier_client.errors import Forbidden
from peltier_client.protocol import Scope

# The tenant that always exists.
TENANT = "default"
ALL_SCOPES: frozenset[Scope] = frozenset(get_args(Scope))
# An admin can create any key, and could read metrics before metrics had a scope of their own.
_METRICS, _ADMIN = "metrics", "admin"


@dataclass(frozen=True)
class Caller:
    """Acts in `tenant` and may do what `scopes` allow; `actor` is its name in the audit log."""

    tenant: str
    scopes: frozenset[Scope]
    actor: str

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
