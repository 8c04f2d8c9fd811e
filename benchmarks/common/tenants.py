"""Tenants of a running server, each with a client of its own key."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx2
from peltier_client import AsyncClient, PeltierError

OPERATOR = "plt_operator-of-the-benchmark"
# The environment of a server that knows this key.
ENVIRONMENT = {"PELTIER_ADMIN_KEY": OPERATOR}


async def create_tenant(url: str, name: str, weight: float = 1.0) -> str:
    """A new tenant; returns its key."""
    async with AsyncClient(url, OPERATOR, timeout=300) as operator:
        await operator.create_tenant(name, weight=weight)
        return (await operator.create_key("predict", "publish", tenant=name)).key


class TenantClients:
    """The clients of several tenants by name, and counters of the server."""

    def __init__(self, url: str) -> None:
        self._url = url
        headers = {"authorization": f"Bearer {OPERATOR}"}
        self._operator = httpx2.AsyncClient(base_url=url, headers=headers, timeout=60)
        self.clients: dict[str, AsyncClient] = {}

    async def __aenter__(self) -> "TenantClients":
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self.clients.values():
            await client.close()
        await self._operator.aclose()

    async def add(self, name: str, adapters: Mapping[str, bytes], weight: float = 1.0) -> None:
        """A new tenant with adapters by their names."""
        client = AsyncClient(self._url, await create_tenant(self._url, name, weight), timeout=300)
        self.clients[name] = client
        for adapter, data in adapters.items():
            await client.upload(data, name=adapter)

    async def counter(self, name: str) -> Counter[str]:
        """The samples of a counter at `/metrics` by tenant."""
        page = (await self._operator.get("/metrics")).text
        samples = re.findall(rf'^{name}\{{tenant="(\w+)"\}} (\S+)$', page, re.MULTILINE)
        return Counter({tenant: int(float(value)) for tenant, value in samples})


@asynccontextmanager
async def flooding(ask: Callable[[], Coroutine[Any, Any, object]], num_callers: int) -> AsyncIterator[None]:
    """So many callers ask again as soon as they are answered, while the block runs; then they disconnect."""

    async def ask_again() -> None:
        while True:
            with suppress(PeltierError):  # a full queue, which the client has waited for long enough
                await ask()

    callers = [asyncio.ensure_future(ask_again()) for _ in range(num_callers)]
    try:
        yield
    finally:
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
