"""Reads the state of a replica again and again."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import UTC, datetime

from peltier_client.asynchronous.client import AsyncClient
from peltier_client.errors import PeltierError
from peltier_client.monitor.snapshot import LoadSnapshot, create_snapshot

# As many as the server may measure by themselves.
_MAX_VERSIONS = 500


@dataclass(frozen=True)
class Lost:
    """The server gave no answer."""

    at: datetime
    error: PeltierError


async def read_load(client: AsyncClient, interval: float) -> AsyncGenerator[LoadSnapshot | Lost, None]:
    """A snapshot every `interval` seconds, or why there is none. Raises a `PeltierError` if the first reading fails.

    After a server was lost, the next snapshot covers the time since the last reading.
    """
    earlier = await client.live(_MAX_VERSIONS)
    while True:
        await asyncio.sleep(interval)
        try:
            now = await client.live(_MAX_VERSIONS)
        except PeltierError as error:
            yield Lost(datetime.now(UTC), error)
            continue
        yield create_snapshot(earlier, now)
        earlier = now
