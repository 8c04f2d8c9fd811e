"""Callers of the routes of trainings, with keys of two tenants."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2
import pytest

from tests.server.conftest import ADMIN, Listening


@dataclass(frozen=True)
class House:
    """A server over a socket, and clients with the keys of its operator, of tenants a and b with the scopes train and
    predict, and of tenant a with all other scopes."""

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
async def open_house(world: Listening) -> AsyncIterator[House]:
    """Callers of two new tenants."""
    a, b = (world.add_tenant("train", "predict") for _ in "ab")
    reader = world.add_key(a.name, "predict", "publish", "admin")
    async with (
        world.client(ADMIN) as operator,
        world.client(a.key) as first,
        world.client(b.key) as second,
        world.client(reader.key) as third,
    ):
        yield House(world, operator, first, second, third, a.name)


@pytest.fixture
async def house(world: Listening) -> AsyncIterator[House]:
    """Two new tenants of the server."""
    async with open_house(world) as opened:
        yield opened
