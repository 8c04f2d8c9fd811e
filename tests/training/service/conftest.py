"""A store with a queue of trainings on the small BERT, and jobs in a folder of their own."""

import asyncio
import json
import random
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from peltier_backbone.backbone import Backbone
from peltier_store.blobs.blobs import Blobs, digest_of
from peltier_store.location import StoreLocation, require_own
from peltier_store.registry.extensions.queue_records import StoredTraining, TrainingDraft
from peltier_store.registry.extensions.registry import Registry
from peltier_training.service.child import Completed, Message, Refused, TrainingJob
from peltier_training.service.job import train_job
from peltier_training.service.request import Machine

TENANT = "default"
Rows = Sequence[Mapping[str, Any]]
# Short, on the 90 tokens that the small BERT takes.
SETTINGS: Mapping[str, Any] = {"epochs": 2, "batch_size": 16, "max_length": 32, "learning_rate": 0.01}


def praise(count: int = 60, seed: int = 0) -> list[dict[str, str]]:
    """Rows with a good or a bad word, and a number that makes each text another."""
    draw = random.Random(seed)
    words = ("a", "film", "the", "plot", "is", "very", "actor", "and")
    rows = []
    for _ in range(count):
        told = draw.choice(("good", "bad"))
        text = " ".join([*draw.choices(words, k=7), told])
        rows.append({"text": text, "label": "positive" if told == "good" else "negative"})
    return rows


def jsonl(rows: Rows) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def request(**changes: Any) -> dict[str, Any]:
    """A short training; `settings` are added to those of all."""
    settings = {**SETTINGS, **changes.pop("settings", {})}
    return {"task": "praise", "settings": settings, **changes}


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder for temporary files with a short name, because sockets are in it, whose names have at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="scratch-", dir="/tmp") as folder:
        yield Path(folder)


@dataclass
class Queue:
    """A store whose default tenant sends trainings."""

    location: StoreLocation
    registry: Registry
    blobs: Blobs

    async def add(self, data, asked=None, *, name="rows.jsonl") -> StoredTraining:
        reservation = await self.registry.reserve(digest_of(data))
        await self.blobs.put(data)
        file = await self.registry.files.add(
            TENANT, reservation, name=name, purpose="train", size_bytes=len(data), num_rows=data.count(b"\n"), actor="a"
        )
        draft = TrainingDraft("praise", request() if asked is None else asked, file.id)
        return await self.registry.trainings.create(TENANT, draft, actor="a")

    async def find(self, training: StoredTraining) -> StoredTraining:
        return await self.registry.trainings.find(TENANT, training.id)

    async def log(self, training: StoredTraining, kind: str) -> list[str]:
        """The sentences of one kind in the training's log."""
        events = await self.registry.trainings.events(TENANT, training.id)
        return [event.message for event in events if event.kind == kind]


async def open_queue(directory: Path) -> Queue:
    location = StoreLocation.of(directory)
    blobs = await asyncio.to_thread(Blobs.open, location.blobs)
    registry = await Registry.open(location.registry)
    await require_own(registry, blobs)
    return Queue(location, registry, blobs)


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[Queue]:
    queue = await open_queue(directory)
    yield queue
    await queue.registry.close()


@pytest.fixture
async def queue(tmp_path: Path) -> AsyncIterator[Queue]:
    async with opened(tmp_path / "store") as queue:
        yield queue


@pytest.fixture
def machine(bert: Backbone) -> Machine:
    return Machine(bert.name, "cpu", threads=1)


@dataclass
class Desk:
    """The current directory of a job that runs in this process."""

    folder: Path
    machine: Machine
    messages: list[Message] = field(default_factory=list)

    def job(self, data: bytes, asked: Mapping[str, Any], *, name: str = "train.jsonl", **options: Any) -> TrainingJob:
        (self.folder / name).write_bytes(data)
        return TrainingJob(self.folder, asked, Path(name), None, self.machine, **options)

    def do(self, job: TrainingJob) -> Completed | Refused:
        return train_job(job, self.messages.append)

    def told(self, kind: type[Message]) -> list[Any]:
        return [message for message in self.messages if isinstance(message, kind)]


@pytest.fixture
def desk(tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Desk:
    folder = tmp_path / "job"
    folder.mkdir()
    monkeypatch.chdir(folder)
    # The writer of a run that was cut off goes on in a thread, when the current directory is another.
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "events"))
    return Desk(folder, machine)
