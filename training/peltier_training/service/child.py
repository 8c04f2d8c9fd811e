"""The processes of trainings, as their worker sees them. The worker itself imports no torch."""

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any

from peltier_training.service.messages import Died, Message, TrainingJob

_JOB = "peltier_training.service.job"
# A thread stops at its next step, or after its evaluation.
_MAX_STOP_SECONDS = 60.0
# The status of a process is read from a pipe once: a thread that reads it second takes it for 255. The start of any
# process reads those of all others.
_status_lock = threading.Lock()


def _nothing() -> None:
    """The work of a process that tells by its end that the imports are done."""


def _work(job: TrainingJob, channel: Connection) -> None:
    from peltier_training.service.job import run_job

    run_job(job, channel)


def _work_together(channel: Connection) -> None:
    from peltier_training.service.job import run_jobs

    run_jobs(channel)


class Children:
    """Starts the processes of trainings, by forking one that has torch and transformers loaded."""

    def __init__(self) -> None:
        self.context: ForkServerContext = get_context("forkserver")
        self.context.set_forkserver_preload(["__main__", _JOB])

    async def ready(self) -> None:
        """Wait for the imports, which take seconds, so that they are not part of the first training's time."""
        process = self.context.Process(target=_nothing)
        await asyncio.to_thread(_start, process)
        await asyncio.to_thread(_join, process)

    @asynccontextmanager
    async def start(self, job: TrainingJob) -> AsyncIterator["Child"]:
        """The process of a job, which is killed at the end of the block."""
        receiver, sender = self.context.Pipe(duplex=False)
        process = self.context.Process(target=_work, args=(job, sender))
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


class SharedChildren:
    """Starts trainings as threads of one process, which has their backbone once. If it dies, so do all of them, and
    the next one starts a new process."""

    def __init__(self, children: Children) -> None:
        self._children = children
        self._process: SharedProcess | None = None
        self._starting = asyncio.Lock()

    @asynccontextmanager
    async def start(self, job: TrainingJob) -> AsyncIterator["SharedChild"]:
        """A job's thread, which has ended at the end of the block: it stops at its next step."""
        async with self._starting:
            if self._process is None or not self._process.is_running:
                self._process = SharedProcess(self._children.context)
                await asyncio.shield(asyncio.to_thread(self._process.start))
        process = self._process
        child = process.admit(job)
        try:
            yield child
        finally:
            await asyncio.shield(process.dismiss(child))

    async def close(self) -> None:
        """End the process."""
        if self._process is not None:
            await asyncio.to_thread(self._process.end)


class SharedProcess:
    """A process with any number of trainings."""

    def __init__(self, context: ForkServerContext) -> None:
        self._channel, self._other = context.Pipe()
        self._process = context.Process(target=_work_together, args=(self._other,))
        self._loop = asyncio.get_running_loop()
        self._children: dict[int, SharedChild] = {}
        self._count = itertools.count()
        self.is_running = True

    def start(self) -> None:
        """Start the process."""
        _start(self._process)
        self._other.close()
        threading.Thread(target=self._receive, name="trainings", daemon=True).start()

    def admit(self, job: TrainingJob) -> "SharedChild":
        """Start a job's thread."""
        child = SharedChild(next(self._count))
        self._children[child.number] = child
        self._send(child.number, job)
        return child

    async def dismiss(self, child: "SharedChild") -> None:
        """Stop a job's thread and wait for its end. If it does not stop in time, the process ends."""
        if not child.has_ended.is_set():
            self._send(child.number, None)
        try:
            await asyncio.wait_for(child.has_ended.wait(), _MAX_STOP_SECONDS)
        except TimeoutError:
            await asyncio.to_thread(self.end)
            await child.has_ended.wait()
        self._children.pop(child.number, None)

    def end(self) -> None:
        """End the process, with all trainings that it has."""
        _end(self._process)

    def _send(self, number: int, job: TrainingJob | None) -> None:
        try:
            self._channel.send((number, job))
        except OSError:  # the process has died, which its children are told
            return

    def _receive(self) -> None:
        while True:
            try:
                number, message = self._channel.recv()
            except (EOFError, OSError):
                break
            self._call(self._tell, number, message)
        self._call(self._tell_all, Died(_join(self._process)))

    def _call(self, function: Callable[..., None], *values: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *values)
        except RuntimeError:  # the loop is closed, so nobody waits for it
            return

    def _tell(self, number: int, message: Message | None) -> None:
        if (child := self._children.get(number)) is not None:
            child.tell(message)

    def _tell_all(self, message: Died) -> None:
        self.is_running = False
        self._channel.close()
        for child in self._children.values():
            child.tell(message)


class SharedChild:
    """A thread of a `SharedProcess`."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.has_ended = asyncio.Event()
        self._messages = asyncio.Queue[Message]()

    async def next(self) -> Message:
        """What it tells next, at the end of the process `Died`."""
        return await self._messages.get()

    def tell(self, message: Message | None) -> None:
        """Take a message; None and `Died` are the end."""
        if message is None or isinstance(message, Died):
            self.has_ended.set()
        if message is not None:
            self._messages.put_nowait(message)
