"""Shell completion of task names, from the server."""

from itertools import islice

import typer

from peltier_client.errors import PeltierError
from peltier_client.exchange.connection import DEFAULT_URL
from peltier_client.synchronous.client import Client

# The shell waits for this.
_TIMEOUT_SECONDS = 1.0
_MAX_NAMES = 100


def complete_task(context: typer.Context, incomplete: str) -> list[str]:
    """Own adapters that begin with `incomplete`, or with the part of it after the last comma; none without a server."""
    before, comma, begun = incomplete.rpartition(",")
    url, api_key = (context.params.get(name) for name in ("url", "api_key"))
    try:
        with Client(url or DEFAULT_URL, api_key, timeout=_TIMEOUT_SECONDS, max_attempts=1) as client:
            found = [adapter.name for adapter in islice(client.adapters(begun), _MAX_NAMES)]
    except PeltierError:
        return []
    return [f"{before}{comma}{name}" for name in found if name.startswith(begun)]
