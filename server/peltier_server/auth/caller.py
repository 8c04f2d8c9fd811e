"""Who asks: a tenant's key, the operator, or anyone on loopback while there are no keys."""

from dataclasses import dataclass
from typing import get_args

from peltier_client.errors import Forbidden
from peltier_client.protocol import Scope

# The tenant that is there from the beginning.
TENANT = "default"
ALL_SCOPES: frozenset[Scope] = frozenset(get_args(Scope))
# Who has the second scope may do what the first one allows. An admin can make any key, and read metrics before they
# had a scope of their own.
_INCLUDED: dict[Scope, Scope] = {"metrics": "admin"}


@dataclass(frozen=True)
class Caller:
    """Acts in `tenant`, may do what `scopes` say; `actor` is how the audit log names it."""

    tenant: str
    scopes: frozenset[Scope]
    actor: str

    def require(self, scope: Scope) -> None:
        """Raises `Forbidden` where the caller lacks `scope`."""
        if scope not in self.scopes and _INCLUDED.get(scope) not in self.scopes:
            held = ", ".join(sorted(self.scopes)) or "none"
            raise Forbidden(f"this needs the scope {scope!r}; the key's scopes are: {held}")


# Where no key is asked for, everyone who reaches the server is its operator.
LOCAL = Caller(TENANT, ALL_SCOPES, "local")
# The bearer of the admin key of the settings, which is in no registry.
OPERATOR = Caller(TENANT, ALL_SCOPES, "operator")
# The bearer of the metrics key of the settings.
MONITOR = Caller(TENANT, frozenset({"metrics"}), "monitor")
