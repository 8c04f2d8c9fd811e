"""Claims of the registry's two queues on PostgreSQL, while other connections have locked rows."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from peltier_store.blobs.blobs import digest_of
from peltier_store.registry.database import database_url
from peltier_store.registry.extensions.queue_records import BatchDraft, StoredBatch, StoredTraining
from peltier_store.registry.extensions.registry import Registry
from peltier_store.registry.tables import Base, RevisionRow
from sqlalchemy import func, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from tests.adapters_store.store.conftest import opened
from tests.adapters_store.store.registry.conftest import add_file, add_training

pytestmark = pytest.mark.postgres
Queued = StoredTraining | StoredBatch
Claim = Callable[[Registry], Awaitable[Queued | None]]
# So often a connection looks whether another one waits for a lock.
_LOOKS, _PAUSE_SECONDS = 3_000, 0.01


@pytest.fixture
async def registry(postgres_url: str) -> AsyncIterator[Registry]:
    async with opened(postgres_url) as registry:
        yield registry


@pytest.fixture
async def other(postgres_url: str) -> AsyncIterator[AsyncConnection]:
    """A connection of another process, in a transaction."""
    engine = create_async_engine(postgres_url)
    async with engine.connect() as connection:
        yield connection
    await engine.dispose()


async def queue_training(registry: Registry, tenant: str) -> Queued:
    return await add_training(registry, tenant=tenant)


async def queue_artifact(registry: Registry, tenant: str) -> Queued:
    """A trained adapter that waits to be published."""
    await add_training(registry, tenant=tenant)
    training = await registry.trainings.claim("w1")
    assert training is not None
    artifact = await registry.reserve(digest_of(training.id.encode()))
    await registry.trainings.settle(training.id, "w1", state="publishing", artifact=artifact, artifact_bytes=1)
    return training


async def queue_batch(registry: Registry, tenant: str) -> Queued:
    file = await add_file(registry, tenant=tenant)
    return await registry.batches.create(tenant, BatchDraft("/v1/embeddings", file.id, "24h"), actor="ann")


CLAIMS: dict[str, tuple[Callable[[Registry, str], Awaitable[Queued]], Claim, type[Base]]] = {
    "trainings": (queue_training, lambda registry: registry.trainings.claim("w2"), StoredTraining),
    "adapters": (queue_artifact, lambda registry: registry.trainings.claim_publishing("r2"), StoredTraining),
    "batches": (queue_batch, lambda registry: registry.batches.claim("r2"), StoredBatch),
}


@pytest.mark.parametrize("kind", CLAIMS)
async def test_a_claim_skips_what_others_have_locked(registry: Registry, other: AsyncConnection, kind: str) -> None:
    """The next in the queue comes instead, of whatever tenant; if every one is locked, the claim finds nothing."""
    queue, claim, row = CLAIMS[kind]
    first, second = await queue(registry, "acme"), await queue(registry, "zenith")
    await lock(other, row, first.id)
    assert id_of(await claim(registry)) == second.id
    assert id_of(await claim(registry)) is None
    await other.rollback()
    assert id_of(await claim(registry)) == first.id


@pytest.mark.parametrize("kind", CLAIMS)
async def test_no_claim_waits_for_a_writer(registry: Registry, other: AsyncConnection, kind: str) -> None:
    """An upload of another process holds the lock of all writers until its end."""
    queue, claim, _ = CLAIMS[kind]
    queued = await queue(registry, "acme")
    await other.execute(update(RevisionRow).values(number=RevisionRow.number + 1))
    assert id_of(await claim(registry)) == queued.id


@pytest.mark.parametrize("kind", CLAIMS)
async def test_claims_at_the_same_moment_share_the_queue(postgres_url: str, kind: str) -> None:
    """Each of twenty is claimed by one of four processes, whatever the order of their statements."""
    queue, claim, _ = CLAIMS[kind]
    registries = [Registry(database_url(postgres_url)) for _ in range(4)]
    queued = {(await queue(registries[0], "acme")).id for _ in range(20)}

    async def claim_all(registry: Registry) -> list[str]:
        found = []
        while len(found) < len(queued) and (one := await claim(registry)) is not None:
            found.append(one.id)
        return found

    shares = await asyncio.gather(*map(claim_all, registries))
    rest = await claim_all(registries[0])  # what was locked when a process looked for the last time
    claimed = [one for share in (*shares, rest) for one in share]
    assert sorted(claimed) == sorted(queued)
    for registry in registries:
        await registry.close()


async def test_a_wish_waits_for_the_claim_of_its_training(registry: Registry, other: AsyncConnection) -> None:
    """Cancelled while a worker claims it, the training is cancelled by its worker: the claim is not overwritten."""
    training = await queue_training(registry, "acme")
    await lock(other, StoredTraining, training.id)
    claimed = update(StoredTraining).where(StoredTraining.id == training.id)
    later = func.now() + text("interval '1 minute'")
    await other.execute(claimed.values(state="running", holder="w1", lease_expires_at=later))
    cancelling = asyncio.create_task(registry.trainings.cancel("acme", training.id, actor="ann"))
    await until_one_waits(other)
    await other.commit()
    cancelled = await cancelling
    assert (cancelled.state, cancelled.wish, cancelled.holder) == ("running", "cancel", "w1")


def id_of(claimed: Queued | None) -> str | None:
    return None if claimed is None else claimed.id


async def lock(connection: AsyncConnection, row: type[Any], row_id: str) -> None:
    await connection.execute(select(row.id).where(row.id == row_id).with_for_update())


async def until_one_waits(connection: AsyncConnection) -> None:
    """Returns once another connection waits for a lock."""
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    for _ in range(_LOOKS):
        if (await connection.execute(waiting)).scalar_one():
            return
        await asyncio.sleep(_PAUSE_SECONDS)
    pytest.fail("no connection waits")
