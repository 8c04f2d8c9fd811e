"""A server in the test's own event loop, over a small random backbone."""

import asyncio
import shutil
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI
from peltier_adapters.batch.row import Row
from peltier_adapters.generation import Draft, Generator
from peltier_server.app import create_app
from peltier_server.catalog import sync
from peltier_server.http.process import create_config
from peltier_server.load_settings import load_settings
from peltier_server.queue.batch import TicketBatch
from peltier_server.service import Service
from peltier_server.settings import Settings
from peltier_store.registry import Registry

Serve = Callable[..., AbstractAsyncContextManager["Running"]]
Listen = Callable[..., AbstractContextManager["Listening"]]


@dataclass(frozen=True)
class Running:
    """A started app, a client of it, and its service."""

    app: FastAPI
    client: httpx2.AsyncClient
    service: Service

    async def upload(self, data: bytes, name: str | None = None) -> httpx2.Response:
        """`POST /v1/adapters`."""
        form = {"name": name} if name is not None else {}
        return await self.client.post("/v1/adapters", files={"file": ("a.safetensors", data)}, data=form)

    async def predict(self, task: str, inputs: object, **parameters: object) -> httpx2.Response:
        """`POST /v1/tasks/{task}/predict`."""
        body = {"inputs": inputs, "parameters": parameters}
        return await self.client.post(f"/v1/tasks/{task}/predict", json=body)

    async def predict_mixed(self, *requests: dict[str, object]) -> httpx2.Response:
        """`POST /v1/predict`."""
        return await self.client.post("/v1/predict", json={"requests": requests})

    async def predict_tasks(self, *tasks: str, text: object = "a good film", **parameters: object) -> httpx2.Response:
        """`POST /v1/predict` of one input."""
        body = {"tasks": tasks, "input": text} | ({"parameters": parameters} if parameters else {})
        return await self.client.post("/v1/predict", json=body)

    async def limit(self, **quotas: object) -> None:
        """Sets the quotas of the default tenant."""
        answer = await self.client.put("/v1/tenants/default", json=quotas)
        assert answer.status_code == 200, answer.text

    async def scores(self, task: str, text: str) -> list[float]:
        """The scores of one text, in the manifest's order."""
        answer = await self.predict(task, text)
        assert answer.status_code == 200, answer.text
        return list(answer.json()["predictions"][0]["scores"].values())


@dataclass(frozen=True)
class Listening:
    """A server on a real socket, in a thread with its own event loop."""

    app: FastAPI
    url: str

    @property
    def service(self) -> Service:
        """The service of the app."""
        service: Service = self.app.state.lifecycle.service()
        return service

    def upload(self, data: bytes, key: str = "") -> None:
        """`POST /v1/adapters`, by the bearer of `key`."""
        headers = {"authorization": f"Bearer {key}"} if key else {}
        httpx2.post(f"{self.url}/v1/adapters", files={"file": data}, headers=headers, timeout=30).raise_for_status()


async def until(condition: Callable[[], object]) -> None:
    """Returns once `condition` holds; fails after a minute."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - there is no event for what tests look at
            await asyncio.sleep(0.001)


async def read_again(running: "Running") -> None:
    """Returns once the server has read the registry by a poll that begins now or later."""
    sync, now = running.service.store.sync, time.monotonic()
    await until(lambda: sync._read_at >= now)


def make_client(app: FastAPI) -> httpx2.AsyncClient:
    """A client of an app in this process; exceptions that the app does not catch are raised here."""
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://peltier", timeout=30)


def take_steps(patch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Each step of the texts that are generated waits to be released, so that they do not end while nobody looks."""
    step, turns = Generator.step, threading.Semaphore(0)

    def wait(generator: Generator) -> list[Draft]:
        assert turns.acquire(timeout=60)
        return step(generator)

    patch.setattr(Generator, "step", wait)
    return turns


@pytest.fixture(scope="module", autouse=True)
def _registries_may_be_slow() -> Iterator[None]:
    """What a server has written it reads back, however long that takes: else it serves what it knew before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sync, "_READ_SECONDS", 60.0)
        yield


@pytest.fixture(scope="session")
def new_registry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated registry without versions, to copy: migrating costs more than most tests."""
    path = tmp_path_factory.mktemp("registry") / "registry.db"

    async def migrate() -> None:
        await (await Registry.open(f"sqlite+aiosqlite:///{path}")).close()

    asyncio.run(migrate())
    return path


def make_settings(new_registry: Path, given: dict[str, object]) -> Settings:
    """Settings of a small server; its store becomes one without versions if it is none yet."""
    store = Path(str(given["store"]))
    if not store.exists():
        store.mkdir()
        shutil.copy(new_registry, store)
    return load_settings({"device": "cpu", "threads": 1, **given, "backbone": str(given["backbone"])})


@pytest.fixture
def settings_of(bert_directory: Path, tmp_path: Path, new_registry: Path) -> Callable[..., Settings]:
    """`settings_of(**overrides)`: settings of a small server with a store of its own."""
    own = {"backbone": bert_directory, "store": tmp_path / "store"}
    return lambda **overrides: make_settings(new_registry, {**own, **overrides})


@pytest.fixture
def serve(settings_of: Callable[..., Settings]) -> Serve:
    """`async with serve(**settings) as running`: a ready server; two in turn share their store."""

    @asynccontextmanager
    async def start(**overrides: object) -> AsyncIterator[Running]:
        app = create_app(settings_of(**overrides))
        async with app.router.lifespan_context(app), make_client(app) as client:
            await app.state.lifecycle.settled()
            yield Running(app, client, app.state.lifecycle.service())

    return start


@pytest.fixture(scope="session")
def listen(bert_directory: Path, tmp_path_factory: pytest.TempPathFactory, new_registry: Path) -> Listen:
    """`with listen(**settings) as listening`: a ready server over a real socket, with a new store."""

    @contextmanager
    def start(**overrides: object) -> Iterator[Listening]:
        own = {"backbone": bert_directory, "store": tmp_path_factory.mktemp("listening") / "store"}
        settings = make_settings(new_registry, {**own, **overrides})
        app = create_app(settings)
        config = create_config(app, settings.limits)
        config.port = 0
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
        thread.start()
        try:
            while not server.started or not app.state.lifecycle.ready:
                time.sleep(0.01)
            yield Listening(app, f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}")
        finally:
            server.should_exit = True
            thread.join()

    return start


@pytest.fixture
async def running(serve: Serve) -> AsyncIterator[Running]:
    """A ready server with the default settings."""
    async with serve() as started:
        yield started


@pytest.fixture
def hold_runner(running: Running) -> Callable[[], Any]:
    """`async with hold_runner():` the runner computes nothing, so that rows wait in the queue."""
    return lambda: hold(running)


@asynccontextmanager
async def hold(running: Running) -> AsyncIterator[None]:
    """The same for any server."""
    released, holding = threading.Event(), threading.Event()
    batcher, take = running.service.batcher, running.service.batcher.next

    def wait(**options: Any) -> TicketBatch | None:
        holding.set()
        released.wait(60)
        return take(**options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batcher, "next", wait)
        # A runner that already waits for rows gets one, so that it comes back for the next; else nobody wants it.
        backbone = running.service.backbone
        errand = asyncio.create_task(batcher.compute([Row(backbone.tokenizer.encode("a", max_tokens=3))]))
        await asyncio.to_thread(holding.wait, 60)
        errand.cancel()
        await asyncio.gather(errand, return_exceptions=True)
        try:
            yield
        finally:
            released.set()
