"""Machines whose clocks differ share a registry, and a clock may jump."""

import importlib
import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo

import peltier_store.registry
import pytest
from peltier_client.protocol.rollouts import RolloutGuard
from peltier_store.blobs.blobs import digest_of
from peltier_store.registry.extensions.queue_records import BatchDraft, StoredBatch, StoredTraining
from peltier_store.registry.extensions.registry import Registry

from tests.adapters_store.store.conftest import opened
from tests.adapters_store.store.registry.conftest import add_file, add_training, publish

_MODULES = [
    importlib.import_module(f"peltier_store.registry.{one.name}")
    for one in pkgutil.iter_modules(peltier_store.registry.__path__)
]
_SECONDS = (75, -75, 3 * 3600, -3 * 3600)


@contextmanager
def clock_ahead(seconds: float) -> Iterator[None]:
    """This machine's clock differs so much from the true time. A PostgreSQL on another machine has that."""

    class Clock(datetime):
        """The wrong clock."""

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(seconds=seconds)

    with pytest.MonkeyPatch.context() as patch:
        for module in _MODULES:
            if getattr(module, "datetime", None) is datetime:
                patch.setattr(module, "datetime", Clock)
        yield


async def queue_work(registry: Registry) -> None:
    """A training, a trained adapter that waits to be published, and a batch."""
    await add_training(registry)
    training = await registry.trainings.claim("w0")
    assert training is not None
    artifact = await registry.reserve(digest_of(b"artifact"))
    await registry.trainings.settle(training.id, "w0", state="publishing", artifact=artifact, artifact_bytes=1)
    await add_training(registry)
    file = await add_file(registry)
    await registry.batches.create("acme", BatchDraft("/v1/embeddings", file.id, "24h"), actor="ann")


async def claim_work(registry: Registry, holder: str) -> list[StoredTraining | StoredBatch | None]:
    """One of each."""
    trainings, batches = registry.trainings, registry.batches
    return [await trainings.claim(holder), await trainings.claim_publishing(holder), await batches.claim(holder)]


@pytest.mark.postgres
@pytest.mark.parametrize("seconds", _SECONDS)
@pytest.mark.parametrize("is_first_wrong", [False, True])
async def test_a_wrong_clock_of_one_machine_takes_nothing_away(postgres_url, seconds, is_first_wrong):
    """Neither the training, the adapter nor the batch of a live process, nor the bytes of an upload."""
    first, second = (seconds, 0.0) if is_first_wrong else (0.0, seconds)
    async with opened(postgres_url) as registry:
        await queue_work(registry)
        with clock_ahead(first):
            digest = (await registry.reserve(digest_of(b"upload"))).digest
            assert None not in await claim_work(registry, "a")
        with clock_ahead(second):
            assert await registry.begin_collection([digest]) == set()
            assert await claim_work(registry, "b") == [None, None, None]


@pytest.mark.postgres
@pytest.mark.parametrize("seconds", _SECONDS)
async def test_the_time_of_the_registry_is_that_of_its_machine(postgres_url: str, seconds: float) -> None:
    """Keys, guarded changes and batches end by it, at every replica at the same moment."""
    async with opened(postgres_url) as registry:
        with clock_ahead(seconds):
            await registry.snapshot()
            file = await add_file(registry)
            batch = await registry.batches.create("acme", BatchDraft("/v1/chat", file.id, "24h"), actor="ann")
            times = [registry.now(), file.created_at, batch.created_at, batch.expires_at - timedelta(hours=24)]
        assert all(abs(one - datetime.now(UTC)) < timedelta(seconds=60) for one in times)


async def test_what_a_clock_ahead_has_leased_is_free_once_it_is_right(sqlite_url: str) -> None:
    """The holder died before its clock was put back, and nobody waits for hours."""
    async with opened(sqlite_url) as registry:
        with clock_ahead(3 * 3600):
            await queue_work(registry)
            assert None not in await claim_work(registry, "a")
        assert None not in await claim_work(registry, "b")


@pytest.mark.parametrize("seconds", [70, 3000])
async def test_a_small_step_back_takes_nothing_away(sqlite_url: str, seconds: float) -> None:
    """The database goes on at another machine after a failover, or its clock is set by another one."""
    async with opened(sqlite_url) as registry:
        with clock_ahead(seconds):
            await queue_work(registry)
            assert None not in await claim_work(registry, "a")
        assert await claim_work(registry, "b") == [None, None, None]


@pytest.mark.parametrize("share", [None, 0.5])
async def test_the_newest_guarded_change_is_the_last_one_by_any_clock(sqlite_url: str, share: float | None) -> None:
    """It ends with the next change of the alias, and then another one may begin, again and again."""
    guard = RolloutGuard(share=share, shadow=share is None)
    async with opened(sqlite_url) as registry:
        for data in (b"1", b"2"):
            await publish(registry, data)
        for seconds in (3 * 3600, 0, -3 * 3600):
            with clock_ahead(seconds):
                await registry.set_alias("acme", "sst2", "live", {1: 1.0}, actor="ann")
                begun = (await registry.rollouts.start("acme", "sst2", "live", 2, guard, actor="ann")).rollout
                assert await registry.rollouts.find("acme", "sst2", "live") == begun
                assert await registry.rollouts.running() == [begun]
