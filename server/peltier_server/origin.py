"""Whose request it is."""

from dataclasses import dataclass

from peltier_server.access.caller import Caller


@dataclass(frozen=True, slots=True)
class Origin:
    """Who asks, and the `x-request-id` under which: the same id gets the same version of a split."""

    caller: Caller
    request_id: str

    @property
    def tenant(self) -> str:
        """Who is accounted for it, and whose adapters its names mean."""
        return self.caller.tenant
