"""The header by which load balancers send the requests for a task to the same replica."""

import re

from peltier_client.protocol.names import BACKBONE_TASK

SESSION_HEADER = "x-session-id"
# The server names the tenant of the caller in this header of its answers.
TENANT_HEADER = "x-tenant"
# Without a key the server is open, and every caller is of this tenant.
OPEN_TENANT = "default"

_SENDABLE = re.compile(r"[!-~]{1,127}")


def session_id(task: str | None, tenant: str | None) -> str | None:
    """`TENANT/TASK` for a reference to a task: the owner of the adapter and its name. All versions have the same one.

    `tenant` is the caller's, None while it is unknown. None if the owner is unknown, and for the backbone without an
    adapter, which every replica has. Whether `task` is a valid reference is for the server to say.
    """
    owner, _, rest = (task or "").rpartition(":")
    name = rest.partition("@")[0]
    owner = owner or tenant or ""
    key = f"{owner}/{name}"
    return key if owner and name not in {"", BACKBONE_TASK} and _SENDABLE.fullmatch(key) else None
