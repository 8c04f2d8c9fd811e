"""Workers that are killed at random moments while others go on.

`python -m tests.training.service.killed_workers --backbone DIRECTORY --kills 200 --store DIRECTORY` is a long run."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from peltier_store.registry.extensions.queue_records import StoredTraining
from typer import Option

from tests.training.service.conftest import TENANT, Queue, jsonl, open_queue, praise, request

# Each takes seconds, with dozens of checkpoints.
ASKED = tuple(request(seed=seed, settings={"epochs": 40}) for seed in range(3))
DATA = jsonl(praise(80))
_END_SECONDS = 600.0
# A process whose worker was killed ends once it learns of it, which takes long on a busy machine.
_LEAVE_SECONDS = 120.0
_ROOT = Path(__file__).parents[3]
_QUEUED = 3


@dataclass
class Killed:
    """What happened: each training as it ended, and its number of completions and of workers."""

    num_kills: int = 0
    num_busy: int = 0
    trainings: list[StoredTraining] = field(default_factory=list)
    completions: Counter[str] = field(default_factory=Counter)
    begun: Counter[str] = field(default_factory=Counter)

    def artifacts(self) -> dict[int, set[str | None]]:
        """The digests of the artifacts by seed."""
        found: dict[int, set[str | None]] = {}
        for training in self.trainings:
            found.setdefault(training.request.get("seed", 0), set()).add(training.artifact_digest)
        return found


class Workers:
    """Two processes over one store. Each has a session of its own."""

    def __init__(self, queue: Queue, backbone: str, logs: Path) -> None:
        self._arguments = [str(logs.parent), queue.location.registry, backbone]
        self._logs, self._running = logs, dict[int, subprocess.Popen[bytes]]()
        self.sessions: list[int] = []
        logs.mkdir(exist_ok=True)

    def fill(self) -> None:
        while len(self._running) < 2:
            number = len(self.sessions)
            command = [sys.executable, "-m", "tests.training.service.short_worker", *self._arguments, f"w{number}"]
            with (self._logs / f"w{number}.log").open("wb") as log:
                process = subprocess.Popen(command, cwd=_ROOT, stdout=log, stderr=log, start_new_session=True)
            self._running[number] = process
            self.sessions.append(process.pid)

    def check(self) -> None:
        """Fails with the log of a worker that has ended by itself."""
        for number, process in self._running.items():
            assert process.poll() is None, (self._logs / f"w{number}.log").read_text()

    def kill(self, number: int) -> None:
        process = self._running.pop(number)
        process.kill()
        process.wait()

    def is_alive(self, name: str | None) -> bool:
        return name is not None and int(name.removeprefix("w")) in self._running

    def end(self) -> None:
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)
        for process in self._running.values():
            process.wait(120)

    def left(self) -> list[int]:
        """Processes of the sessions that have not ended."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(ValueError, OSError):
                if os.getsid(int(entry.name)) in self.sessions:
                    found.append(int(entry.name))
        return found


async def kill_workers(queue: Queue, backbone: str, num_kills: int, *, seed: int = 0, seconds: float = 4.0) -> Killed:
    """Have trainings done while workers are killed that have one, each after up to `seconds`."""
    draw, killed = random.Random(seed), Killed()
    workers = Workers(queue, backbone, queue.location.blobs.parent / "logs")  # type: ignore[union-attr]
    sent: list[StoredTraining] = []
    try:
        while killed.num_kills < num_kills:
            workers.fill()
            await _send(queue, sent)
            holder = await _busy(queue, workers, draw)
            await asyncio.sleep(draw.uniform(0, seconds))
            workers.kill(holder)
            killed.num_kills += 1
            killed.num_busy += any(one.holder == f"w{holder}" for one in await _active(queue))
        workers.fill()
        await _wait_for_all(queue, workers, sent)
    finally:
        workers.end()
    deadline = time.monotonic() + _LEAVE_SECONDS
    while workers.left() and time.monotonic() < deadline:  # noqa: ASYNC110 - other processes end
        await asyncio.sleep(0.1)
    assert workers.left() == []
    for training in sent:
        killed.trainings.append(await queue.find(training))
        told = await queue.log(training, "state")
        killed.completions[training.id] = sum("is complete" in sentence for sentence in told)
        killed.begun[training.id] = sum("has begun" in sentence for sentence in told)
    return killed


async def _send(queue: Queue, sent: list[StoredTraining]) -> None:
    """So many that nobody waits for work."""
    while len(await _active(queue)) < _QUEUED:
        sent.append(await queue.add(DATA, ASKED[len(sent) % len(ASKED)]))


async def _active(queue: Queue) -> list[StoredTraining]:
    states = ("queued", "running", "evaluating")
    return await queue.registry.trainings.list(TENANT, states=states, limit=1000)


async def _busy(queue: Queue, workers: Workers, draw: random.Random) -> int:
    """The number of a living worker that has a training."""
    while True:
        workers.check()
        names = sorted({one.holder for one in await _active(queue) if one.holder and workers.is_alive(one.holder)})
        if names:
            return int(draw.choice(names).removeprefix("w"))
        await asyncio.sleep(0.1)


async def _wait_for_all(queue: Queue, workers: Workers, sent: list[StoredTraining]) -> None:
    async with asyncio.timeout(_END_SECONDS + 30 * len(sent)):
        while await _active(queue):
            workers.check()
            await asyncio.sleep(0.2)


async def _run(store: Path, backbone: str, kills: int, seed: int) -> dict[str, Any]:
    queue = await open_queue(store)
    try:
        found = await kill_workers(queue, backbone, kills, seed=seed)
    finally:
        await queue.registry.close()
    return {
        "kills": found.num_kills,
        "kills_of_busy_workers": found.num_busy,
        "trainings": len(found.trainings),
        "states": dict(Counter(one.state for one in found.trainings)),
        "reasons": [one.reason for one in found.trainings if one.reason],
        "completions": dict(Counter(found.completions.values())),
        "workers_of_a_training": dict(Counter(found.begun.values())),
        "artifacts_by_seed": {seed: sorted(map(str, names)) for seed, names in found.artifacts().items()},
    }


def main(
    *, store: Annotated[Path, Option()], backbone: Annotated[str, Option()], kills: Annotated[int, Option()] = 200,
    seed: Annotated[int, Option()] = 0,
) -> None:  # fmt: skip
    """Print what happened."""
    print(asyncio.run(_run(store, backbone, kills, seed)))


if __name__ == "__main__":
    typer.run(main)
