"""Callers of the routes of trainings, with keys of two tenants."""

import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import ClassVar

import httpx2

from tests.server.conftest import Listening

_NUMBERS = itertools.count()


@dataclass(frozen=True)
class House:
    """A server over a socket, and clients with the keys of its operator, of tenants a and b with the scopes train and
    predict, and of tenant a with all other scopes."""

    ADMIN: ClassVar = "plt_the-key-of-the-operator"
    listening: Listening
    operator: httpx2.AsyncClient
    a: httpx2.AsyncClient
    b: httpx2.AsyncClient
    reader: httpx2.AsyncClient
    tenant: str

    async def upload(self, name: str, data: bytes) -> httpx2.Response:
        """`POST /v1/files` of tenant a."""
        form = {"purpose": "fine-tune"}
        return await self.a.post("/v1/files", files={"file": (name, data)}, data=form)

    async def limit(self, **quotas: object) -> None:
        """Sets the quotas of tenant a."""
        (await self.operator.put(f"/v1/tenants/{self.tenant}", json=quotas)).raise_for_status()


@asynccontextmanager
async def open_house(listening: Listening) -> AsyncIterator[House]:
    """Callers of a server with the admin key `House.ADMIN`, of two new tenants."""
    async with AsyncExitStack() as opened:

        async def client(key: str) -> httpx2.AsyncClient:
            headers = {"authorization": f"Bearer {key}"}
            return await opened.enter_async_context(
                httpx2.AsyncClient(base_url=listening.url, headers=headers, timeout=30)
            )

        operator, number = await client(House.ADMIN), next(_NUMBERS)

        async def caller(tenant: str, *scopes: str) -> httpx2.AsyncClient:
            made = await operator.post("/v1/keys", json={"tenant": tenant, "scopes": scopes})
            return await client(made.raise_for_status().json()["key"])

        tenants = [f"a{number}", f"b{number}"]
        for tenant in tenants:
            (await operator.post("/v1/tenants", json={"name": tenant})).raise_for_status()
        a, b = [await caller(tenant, "train", "predict") for tenant in tenants]
        reader = await caller(tenants[0], "predict", "publish", "admin")
        yield House(listening, operator, a, b, reader, tenants[0])
