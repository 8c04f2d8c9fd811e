"""What is known of the request that is being answered, for log records that are made meanwhile."""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from peltier_server.auth.caller import Caller
from peltier_server.inference.resolved_task import ResolvedTask

_NO_REQUEST: Mapping[str, Any] = {}
# The state of the request's scope, which learns later who calls and what is asked.
request_state: ContextVar[Mapping[str, Any]] = ContextVar("request_state", default=_NO_REQUEST)


def request_fields() -> dict[str, str | int]:
    """The request's id, its caller's tenant, and the adapter version that was asked, as far as they are known. Another
    tenant's adapter is `tenant:name`. Nothing outside of requests."""
    state = request_state.get()
    fields: dict[str, str | int] = {}
    if "request_id" in state:
        fields["request_id"] = state["request_id"]
    caller: Caller | None = state.get("caller")
    if caller is not None:
        fields["tenant"] = caller.tenant
    target: ResolvedTask | None = state.get("target")
    if target is not None:
        version = target.entry.version
        is_own = version.tenant == target.context.tenant
        fields["adapter"] = version.name if is_own else f"{version.tenant}:{version.name}"
        fields["version"] = version.number
    return fields
