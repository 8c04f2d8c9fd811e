"""The Python client of Peltier: typed calls to a server, synchronous and asynchronous."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Names of `api`, which loads with the first of them: an error or a body of the protocol needs no client.
if TYPE_CHECKING:
    from peltier_client.api import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        return getattr(import_module("peltier_client.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *import_module("peltier_client.api").__all__})
