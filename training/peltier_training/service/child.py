"""The processes of trainings, as their worker sees them. The worker itself imports no torch."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess

from peltier_training.service.messages import Died, Message, TrainingJob

_JOB = "peltier_training.service.job"
# The status of a process is read from a pipe once: a thread that reads it second takes it for 255. The start of any
# process reads those of all others.
_status_lock = threading.Lock()


def _nothing() -> None:
    """The work of a process that tells by its end that the imports are done."""


def _work(job: TrainingJob, channel: Connection) -> None:
    from peltier_training.service.job import run_job

    run_job(job, channel)


class Children:
    """Starts the processes of trainings, by forking one that has torch and transformers loaded."""

    def __init__(self) -> None:
        self._context: ForkServerContext = get_context("forkserver")
        self._context.set_forkserver_preload(["__main__", _JOB])

    async def ready(self) -> None:
        """Wait for the imports, which take seconds, so that they are not part of the first training's time."""
        process = self._context.Process(target=_nothing)
        await asyncio.to_thread(_start, process)
        await asyncio.to_thread(_join, process)

    @asynccontextmanager
    async def start(self, job: TrainingJob) -> AsyncIterator["Child"]:
        """The process of a job, which is killed at the end of the block."""
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_work, args=(job, sender))
        starting = asyncio.ensure_future(asyncio.to_thread(_start, process))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            await starting
            await asyncio.to_thread(_end, process)
            raise
        finally:
            sender.close()
        try:
            yield Child(process, receiver)
        finally:
            await asyncio.shield(asyncio.to_thread(_end, process))


class Child:
    """A process that has been started."""

    def __init__(self, process: ForkServerProcess, channel: Connection) -> None:
        self._process, self._channel = process, channel
        self._loop = asyncio.get_running_loop()
        self._messages = asyncio.Queue[Message]()
        threading.Thread(target=self._receive, name="training", daemon=True).start()

    async def next(self) -> Message:
        """What it tells next, at the end `Died`."""
        return await self._messages.get()

    def _receive(self) -> None:
        while True:
            try:
                message: Message = self._channel.recv()
            except (EOFError, OSError):
                break
            self._put(message)
        self._channel.close()
        self._put(Died(_join(self._process)))

    def _put(self, message: Message) -> None:
        try:
            self._loop.call_soon_threadsafe(self._messages.put_nowait, message)
        except RuntimeError:  # the loop is closed, so nobody waits for it
            return


def _start(process: ForkServerProcess) -> None:
    with _status_lock:
        process.start()


def _join(process: ForkServerProcess) -> int:
    """Wait for the end of a process; returns its status."""
    wait([process.sentinel])
    with _status_lock:
        process.join()
        return process.exitcode or 0


def _end(process: ForkServerProcess) -> None:
    process.kill()
    _join(process)
