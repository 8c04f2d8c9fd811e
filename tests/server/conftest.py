"""A server in the test's own event loop, over a small random backbone."""

import asyncio
import itertools
import shutil
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import httpx2
import pytest
import pytest_asyncio
import uvicorn
from fastapi import FastAPI
from peltier_adapters.artifact.manifest import read_header
from peltier_adapters.artifact.source import digest_of
from peltier_adapters.batch.row import Row
from peltier_adapters.generation import Draft, Generator
from peltier_client.protocol.administration import TenantQuotas
from peltier_server.app import create_app
from peltier_server.auth.keyring import ALL_SCOPES
from peltier_server.catalog import sync
from peltier_server.catalog.publisher import Store
from peltier_server.extensions.settings import Settings, load_settings
from peltier_server.http.process import create_config
from peltier_server.queue.batch import TicketBatch
from peltier_server.service import Service
from peltier_store.blobs.blobs import Blobs
from peltier_store.registry.extensions.registry import Registry

from tests.support.played_worker import PlayedWorker

Serve = Callable[..., AbstractAsyncContextManager["Running"]]
Listen = Callable[..., AbstractContextManager["Listening"]]
T = TypeVar("T")

ADMIN = "plt_the-key-of-the-operator"  # the admin key of `world`
_NUMBERS = itertools.count(1)
# Tests of one event loop, in which a server of the module may be.
IN_ONE_LOOP = pytest.mark.asyncio(loop_scope="module")


@dataclass(frozen=True)
class Running:
    """A started app, a client of it, its service, and the client's tenant. There is the operator's client too, where
    `client` is another's, and the event loop of the app, where it is not the test's."""

    app: FastAPI
    client: httpx2.AsyncClient
    service: Service
    tenant: str = "default"
    operator: httpx2.AsyncClient | None = None
    loop: asyncio.AbstractEventLoop | None = None

    @property
    def actor(self) -> str:
        """The name of the client in the audit log and in what it has made."""
        _, _, key = self.client.headers.get("authorization", "").partition("_")
        return f"key:{key.partition('_')[0]}" if key else "local"

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine of the service, in the event loop of the app."""
        if self.loop is None:
            return await coroutine
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self.loop))

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

    async def publish(self, name: str, *artifacts: bytes) -> None:
        """Makes versions of an adapter as uploads do, in a third of the time: without HTTP and without their proof."""
        await self.run(_publish(self.service.store, self.tenant, name, artifacts))

    @asynccontextmanager
    async def enter(self, *scopes: str) -> AsyncIterator["Running"]:
        """A client with a key of a new tenant that has these scopes, or all of them."""
        tenant = await add_tenant(self.app, scopes)
        async with make_client(self.app, tenant.key) as client:
            yield Running(self.app, client, self.service, tenant.name, self.client)

    async def limit(self, **quotas: object) -> None:
        """Sets the quotas of the tenant."""
        answer = await (self.operator or self.client).put(f"/v1/tenants/{self.tenant}", json=quotas)
        assert answer.status_code == 200, answer.text

    @asynccontextmanager
    async def limited(self, **quotas: object) -> AsyncIterator[None]:
        """`limit`, until the block ends."""
        await self.limit(**quotas)
        try:
            yield
        finally:
            await self.limit()

    async def scores(self, task: str, text: str) -> list[float]:
        """The scores of one text, in the manifest's order."""
        answer = await self.predict(task, text)
        assert answer.status_code == 200, answer.text
        return list(answer.json()["predictions"][0]["scores"].values())


class Tenant(NamedTuple):
    """A tenant, and a key of it."""

    name: str
    key: str


@dataclass(frozen=True)
class Listening:
    """A server on a real socket, in a thread with its own event loop."""

    app: FastAPI
    url: str
    loop: asyncio.AbstractEventLoop

    @property
    def service(self) -> Service:
        """The service of the app."""
        service: Service = self.app.state.lifecycle.service()
        return service

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine in the event loop of the server."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    def add_tenant(self, *scopes: str) -> Tenant:
        """A new tenant, with a key that has these scopes, or all of them."""
        return self.run(add_tenant(self.app, scopes))

    def add_key(self, tenant: str, *scopes: str) -> Tenant:
        """The tenant with one more key, which has these scopes."""
        return self.run(_add_key(self.app, tenant, scopes))

    @asynccontextmanager
    async def enter(self, tenant: Tenant) -> AsyncIterator[Running]:
        """Clients with the key of the tenant and with that of the operator."""
        async with self.client(tenant.key) as client, self.client(ADMIN) as operator:
            yield Running(self.app, client, self.service, tenant.name, operator, self.loop)

    def client(self, key: str) -> httpx2.AsyncClient:
        """A client with a key."""
        headers = {"authorization": f"Bearer {key}"}
        return httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=30)

    def upload(self, data: bytes, key: str = "") -> None:
        """`POST /v1/adapters`, by the bearer of `key`."""
        headers = {"authorization": f"Bearer {key}"} if key else {}
        httpx2.post(f"{self.url}/v1/adapters", files={"file": data}, headers=headers, timeout=30).raise_for_status()

    def post(self, path: str, **body: object) -> httpx2.Response:
        """A call with this JSON, without a key."""
        return httpx2.post(f"{self.url}{path}", json=body, timeout=60)

    def predictions(self, task: str, inputs: object, **parameters: object) -> list[dict[str, Any]]:
        """Those of `POST /v1/tasks/{task}/predict`, without a key."""
        found: list[dict[str, Any]] = self.post(
            f"/v1/tasks/{task}/predict", inputs=inputs, parameters=parameters
        ).json()["predictions"]
        return found


async def add_tenant(app: FastAPI, scopes: Sequence[str] = (), quotas: TenantQuotas | None = None) -> Tenant:
    """A new tenant, with a key that has these scopes, or all of them: as the operator makes both, in a third of the
    time."""
    name = f"tenant-{next(_NUMBERS)}"
    await app.state.lifecycle.service().store.registry.create_tenant(name, quotas or TenantQuotas(), actor="operator")
    return await _add_key(app, name, scopes or sorted(ALL_SCOPES))


async def _add_key(app: FastAPI, tenant: str, scopes: Sequence[str]) -> Tenant:
    store, issued = app.state.lifecycle.service().store, app.state.authenticator.keyring.credentials.issue()
    await store.registry.create_key(
        tenant, prefix=issued.prefix, digest=issued.digest, scopes=scopes, note="", expires_at=None, actor="operator"
    )
    await store.sync.sync_after_write()
    return Tenant(tenant, issued.text)


async def _publish(store: Store, tenant: str, name: str, artifacts: Sequence[bytes]) -> None:
    for data in artifacts:
        manifest = read_header(data)[0]
        reservation = await store.registry.reserve(digest_of(data))
        await store.blobs.put(data)
        own = {"size_bytes": len(data), "preset": manifest.preset, "manifest": manifest.model_dump_json()}
        await store.registry.publish(tenant, name, reservation, **own, actor="test")
    await store.sync.sync_after_write()


async def until(condition: Callable[[], object]) -> None:
    """Returns once `condition` holds; fails after a minute."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - there is no event for what tests look at
            await asyncio.sleep(0.001)


async def read_again(running: "Running") -> None:
    """Returns once the server has read the registry by a poll that begins now or later."""
    sync, now = running.service.store.sync, time.monotonic()
    await until(lambda: sync._read_at >= now)


def make_client(app: FastAPI, key: str = "") -> httpx2.AsyncClient:
    """A client of an app in this process; exceptions that the app does not catch are raised here."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app), base_url="http://peltier", headers=headers, timeout=30
    )


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


@asynccontextmanager
async def _start(settings: Settings, key: str = "") -> AsyncIterator[Running]:
    app = create_app(settings)
    async with app.router.lifespan_context(app), make_client(app, key) as client:
        await app.state.lifecycle.settled()
        yield Running(app, client, app.state.lifecycle.service())


@pytest.fixture
def serve(settings_of: Callable[..., Settings]) -> Serve:
    """`async with serve(**settings) as running`: a ready server; two in turn share their store."""
    return lambda **overrides: _start(settings_of(**overrides))


@pytest.fixture(scope="session")
def open_app(bert_directory: Path, tmp_path_factory: pytest.TempPathFactory, new_registry: Path) -> Serve:
    """`async with open_app(**settings) as running`: a ready server with the admin key `ADMIN` and a new store, and the
    operator's client."""

    def start(**overrides: object) -> AbstractAsyncContextManager[Running]:
        own = {"backbone": bert_directory, "store": tmp_path_factory.mktemp("app") / "store", "admin_key": ADMIN}
        return _start(make_settings(new_registry, {**own, **overrides}), ADMIN)

    return start


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app_world(open_app: Serve) -> AsyncIterator[Running]:
    """As `world`, but in the event loop of all tests of a module, which has `pytestmark = IN_ONE_LOOP`; for tests that
    call the parts of the server. Modules with other settings override it."""
    async with open_app() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def app_caller(app_world: Running) -> AsyncIterator[Running]:
    """A new tenant of `app_world`, so that tests of a module share nothing, and a client with all of its rights."""
    async with app_world.enter() as entered:
        yield entered


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
            (listener,) = server.servers
            yield Listening(app, f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}", listener.get_loop())
        finally:
            server.should_exit = True
            thread.join()

    return start


@pytest.fixture(scope="module")
def world(listen: Listen) -> Iterator[Listening]:
    """A server over a socket for all tests of a module, with the admin key `ADMIN`. Modules with other settings
    override it."""
    with listen(admin_key=ADMIN) as started:
        yield started


@pytest.fixture
async def caller(world: Listening) -> AsyncIterator[Running]:
    """A new tenant of `world`, so that tests of a module share nothing, and a client with all of its rights."""
    async with world.enter(world.add_tenant()) as entered:
        yield entered


@pytest.fixture(scope="module")
def worker(world: Listening) -> Iterator[PlayedWorker]:
    """A worker of `world`, which trains nothing."""
    settings = world.service.settings.store
    registry = world.run(Registry.open(settings.registry))
    yield PlayedWorker(registry, Blobs.open(settings.blobs))
    world.run(registry.close())


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
