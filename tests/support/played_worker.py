"""A worker that trains nothing: it takes trainings from the registry, as a process of its own would, and leaves a given
adapter."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from peltier_server.settings import StoreSettings
from peltier_store.blobs.blobs import Blobs, digest_of
from peltier_store.registry.extensions.queue_records import NewEvent, StoredTraining
from peltier_store.registry.extensions.registry import Registry

NAME = "played"


@dataclass(frozen=True)
class PlayedWorker:
    """A worker with connections of its own to the registry and the store."""

    registry: Registry
    blobs: Blobs

    async def begin(self) -> StoredTraining:
        """Takes the next training, which must wait."""
        training = await self.registry.trainings.claim(NAME)
        assert training is not None, "no training waits"
        return training

    async def report(
        self, training: StoredTraining, message: str, step: int = 1, value: float = 0.5, best: float = 0.5,
        best_step: int = 1,
    ) -> str | None:  # fmt: skip
        """Reports a validated step; returns the owner's wish."""
        validation = {"metric": "accuracy", "value": value, "best": best, "best_step": best_step}
        progress = {"step": step, "max_steps": 4, "loss": 0.5, "seconds_left": 3.0, **validation}
        event = NewEvent("progress", message, progress)
        return await self.registry.trainings.renew(
            training.id, NAME, progress=progress, preflight={"rows": 2}, events=[event], seconds=1.5
        )

    async def fail(self, training: StoredTraining) -> None:
        """Ends the training as failed."""
        await self.registry.trainings.settle(training.id, NAME, state="failed", reason="of a test")

    async def leave(self, training: StoredTraining, artifact: bytes, report: str | None = None) -> None:
        """Ends the training with this adapter, which is left to be published."""
        reservation = await self.registry.reserve(digest_of(artifact))
        await self.blobs.put(artifact)
        await self.registry.trainings.settle(
            training.id,
            NAME,
            state="publishing",
            metrics={"accuracy": 0.9},
            report=report,
            artifact=reservation,
            artifact_bytes=len(artifact),
        )


@asynccontextmanager
async def play_worker(settings: StoreSettings) -> AsyncIterator[PlayedWorker]:
    """A worker of the server with these settings."""
    registry = await Registry.open(settings.registry)
    try:
        yield PlayedWorker(registry, Blobs.open(settings.blobs))
    finally:
        await registry.close()
