"""The caller: a tenant's key, the operator, or any caller on loopback while there are no keys."""

from dataclasses import dataclass
from typing import get_args

from peltier_client.errors import Forbidden
from peltier_client.protocol import Scope

# The tenant that always exists.
TENANT = "default"
ALL_SCOPES: frozenset[Scope] = frozenset(get_args(Scope))
# The second scope includes the first. An admin can create any key, and could read metrics before metrics had a scope of
# their own.
_INCLUDED: dict[Scope, Scope] = {"metrics": "admin"}


@dataclass(frozen=True)
class Caller:
    """Acts in `tenant` and may do what `scopes` allow; `actor` is its name in the audit log."""

    tenant: str
    scopes: frozenset[Scope]
    actor: str

    def require(self, scope: Scope) -> None:
        """Raises `Forbidden` if the caller lacks `scope`."""
        if scope not in self.scopes and _INCLUDED.get(scope) not in self.scopes:
            held = ", ".join(sorted(self.scopes)) or "none"
            raise Forbidden(f"this needs the scope {scope!r}; the key's scopes are: {held}")


# On a server that asks for no key, every caller is its operator.
LOCAL = Caller(TENANT, ALL_SCOPES, "local")
# The caller with the admin key of the settings, which is not in the registry.
OPERATOR = Caller(TENANT, ALL_SCOPES, "operator")
# The caller with the metrics key of the settings.
MONITOR = Caller(TENANT, frozenset({"metrics"}), "monitor")
