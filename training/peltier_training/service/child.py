"""The processes of trainings, as their worker sees them. The worker itself imports no torch."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from peltier_training.executor.executor import ForkServer, Process
from peltier_training.service.messages import Message, TrainingJob


def _load(nothing: None, send: Callable[[Message], None]) -> None:
    """The work of a process that tells by its end that the imports are done."""


def _work(job: TrainingJob, send: Callable[[Message], None]) -> None:
    from peltier_training.service.job import run_job

    run_job(job, send)


class Children:
    """Starts the processes of trainings."""

    def __init__(self) -> None:
        self._server = ForkServer("peltier_training.service.job")

    async def ready(self) -> None:
        """Wait for the imports, which take seconds, so that they are not part of the first training's time."""
        process = await asyncio.to_thread(self._server.start, _load, None)
        await asyncio.to_thread(process.join)

    @asynccontextmanager
    async def start(self, job: TrainingJob) -> AsyncIterator[Process]:
        """The process of a job, which is killed at the end of the block. It tells a `Message`, at the end `Died`."""
        starting = asyncio.ensure_future(asyncio.to_thread(self._server.start, _work, job, folder=job.directory))
        try:
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.to_thread((await starting).end)
            raise
        try:
            yield process
        finally:
            await asyncio.shield(asyncio.to_thread(process.end))
