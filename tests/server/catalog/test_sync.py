"""Several replicas on one registry."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from peltier_adapters.artifact.manifest import Manifest, parse_manifest
from peltier_backbone.backbone import Backbone
from peltier_server.catalog import published, sync
from peltier_store.registry.errors import RegistryError
from peltier_store.registry.records import Position, RegistrySnapshot

from tests.server.conftest import IN_ONE_LOOP, Running, Serve, make_client, read_again, until
from tests.support.fault_proxy import FaultProxy

pytestmark = IN_ONE_LOOP

# A follower that does not follow; one that does is done after a few reads of the registry, four a second.
_HANGS_SECONDS = 60
# What replicas of one registry share.
SECRET = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def running(app_caller: Running) -> Running:
    """A new tenant of the module's server."""
    return app_caller


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def both(open_app: Serve, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Running, Running]]:
    """Two servers that share a database and the bytes, and nothing else. A head of 1,500 labels fits."""
    given = {"store": tmp_path_factory.mktemp("replicas") / "store", "max_adapter_cost": 2.0}
    async with open_app(**given) as one, open_app(**given) as two:
        yield one, two


@pytest_asyncio.fixture(loop_scope="module")
async def replicas(both: tuple[Running, Running]) -> AsyncIterator[tuple[Running, Running]]:
    """A new tenant of both."""
    async with both[0].enter() as one:
        _, _, key = one.client.headers["authorization"].partition(" ")
        async with make_client(both[1].app, key) as client:
            await both[1].service.store.sync.catch_up()
            yield one, replace(one, app=both[1].app, client=client, service=both[1].service)


async def soon(running: Running, task: str, status: int = 200, version: int | None = None) -> None:
    """Returns once a prediction ends with `status` and by `version`."""
    async with asyncio.timeout(_HANGS_SECONDS):
        while True:
            answer = await running.predict(task, "bad")
            seen = answer.json()["adapter"]["version"] if answer.status_code == 200 else None
            if (answer.status_code, seen) == (status, version):
                return
            await asyncio.sleep(0.02)


async def test_another_reader_gets_the_same_changes_until_it_has_read_them(running, bert, make_artifact):
    """And the first ones at once, also if nothing has changed."""
    sync, seen, failures = running.service.store.sync, list[list[str]](), list[RegistryError]()

    async def read(snapshot: RegistrySnapshot) -> None:
        seen.append([one.name for one in snapshot.adapters])
        if failures:
            raise failures.pop()

    sync.read_also(read)
    await sync.catch_up()
    assert seen == [[]]
    failures.append(RegistryError("it does not answer"))
    assert (await running.upload(make_artifact(bert, "bitfit", name="read-twice"))).status_code == 201
    await sync.catch_up()
    assert seen[1:] == [["read-twice"]] * 2


async def test_what_one_replica_writes_the_other_serves_soon(replicas, bert, make_artifact):
    """Uploads, aliases, deletions and their undoing; the writer itself at once."""
    one, two = replicas
    for seed in (0, 1):
        assert (await one.upload(make_artifact(bert, "bitfit", name="a", seed=seed))).status_code == 201
    await soon(two, "a", version=2)
    assert await two.scores("a", "bad") == pytest.approx(await one.scores("a", "bad"), abs=1e-6)
    assert (await two.client.put("/v1/adapters/a/aliases/production", json={"version": 1})).status_code == 200
    assert (await two.predict("a", "bad")).json()["adapter"]["version"] == 1
    await soon(one, "a", version=1)
    assert (await one.client.post("/v1/adapters/a/aliases/production/rollback")).status_code == 409
    assert (await one.client.delete("/v1/adapters/a/aliases/production")).status_code == 204
    await soon(two, "a", version=2)
    assert (await two.client.delete("/v1/adapters/a/versions/2")).status_code == 204
    assert (await two.predict("a@2", "bad")).status_code == 404
    await soon(one, "a@2", status=404)
    assert (await one.client.post("/v1/adapters/a/versions/2/undelete")).status_code == 200
    await soon(two, "a@2", version=2)
    assert (await two.client.delete("/v1/adapters/a")).status_code == 204
    await soon(one, "a", status=404)


async def test_a_replica_decides_by_the_registry_and_not_by_what_it_remembers(replicas, bert, make_artifact):
    """An upload of bytes that another replica has deleted a moment ago is a new version, not the deleted one."""
    one, two = replicas
    data = make_artifact(bert, "bitfit", name="a")
    await one.upload(data)
    await soon(two, "a", version=1)
    await one.client.delete("/v1/adapters/a")
    again = await two.upload(data)
    assert (again.status_code, again.json()["version"]) == (201, 2)
    assert (await two.predict("a", "bad")).json()["adapter"]["version"] == 2


@pytest.mark.postgres
async def test_replicas_on_postgresql(serve, postgres, bert, make_artifact):
    """See each other as those on one file do; while the database is away all goes on but writing, and then that too."""
    registry = postgres.url(postgres.create_database())
    async with serve(registry=registry, secret=SECRET) as one, serve(registry=registry, secret=SECRET) as two:
        assert (await one.upload(make_artifact(bert, "bitfit", name="a"))).status_code == 201
        await soon(two, "a", version=1)
        await asyncio.to_thread(postgres.stop)
        try:
            refused = await two.upload(make_artifact(bert, "bitfit", name="a", seed=1))
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "unavailable")
            assert refused.headers["retry-after"] == "1"
            assert "postgres" not in refused.text
            assert (await two.predict("a", "bad")).status_code == 200
            assert (await two.client.get("/v1/adapters")).status_code == 200
        finally:
            await asyncio.to_thread(postgres.start)
        assert (await two.upload(make_artifact(bert, "bitfit", name="a", seed=1))).status_code == 201
        await soon(one, "a", version=2)


@pytest.mark.postgres  # a read that hangs is given up on SQLite too, below
async def test_a_silent_database_holds_up_no_prediction(serve, postgres, bert, make_artifact, monkeypatch, caplog):
    """A network that swallows everything causes no error for a long time; predictions do not wait for it."""
    monkeypatch.setattr(sync, "_READ_SECONDS", 600)
    direct = postgres.url(postgres.create_database())
    with FaultProxy("127.0.0.1", postgres.port).running() as proxy:
        by_proxy = direct.replace(str(postgres.port), str(proxy.port))
        async with serve(registry=direct, secret=SECRET) as one, serve(registry=by_proxy, secret=SECRET) as two:
            assert (await one.upload(make_artifact(bert, "bitfit", name="a"))).status_code == 201
            await soon(two, "a", version=1)
            await asyncio.to_thread(proxy.set_mode, "silent")
            assert (await one.upload(make_artifact(bert, "bitfit", name="a", seed=1))).status_code == 201
            reading = two.service.store.sync._turn.locked
            await until(reading)
            assert (await two.predict("a", "bad")).json()["adapter"]["version"] == 1
            assert reading()
            assert "the last known state is served" not in caplog.text  # the read has not been given up in between
            await asyncio.to_thread(proxy.set_mode, "open")
            await soon(two, "a", version=2)


async def test_a_registry_that_fails_is_followed_again_once_it_answers(
    replicas: tuple[Running, Running],
    bert: Backbone,
    make_artifact: Callable[..., bytes],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Meanwhile what is known is served, and the log says so once."""
    one, two = replicas
    await one.upload(make_artifact(bert, "bitfit", name="a"))
    await soon(two, "a", version=1)

    async def fail(since: Position | None) -> None:
        raise RegistryError("the registry 'x' failed: no route to it")

    with monkeypatch.context() as broken:
        broken.setattr(two.service.store.registry, "snapshot", fail)
        assert (await one.upload(make_artifact(bert, "bitfit", name="a", seed=1))).status_code == 201
        await until(lambda: "the last known state is served" in caplog.text)
        assert (await two.predict("a", "bad")).json()["adapter"]["version"] == 1
    await soon(two, "a", version=2)
    assert caplog.text.count("the last known state is served") == 1


async def test_a_read_that_hangs_is_given_up(running, bert, make_artifact, monkeypatch, caplog):
    """As on a connection that has silently died; the next attempt succeeds, and writers do not wait for longer."""
    registry, following = running.service.store.registry, running.service.store.sync
    read, hung = registry.snapshot, list[Position | None]()

    async def hang_once(since: Position | None) -> object:
        if not hung:
            hung.append(since)
            await asyncio.sleep(60)
        return await read(since)

    async with following._turn:  # a read that ends resets the time
        monkeypatch.setattr(following, "_timeout_seconds", 0.1)
        monkeypatch.setattr(registry, "snapshot", hang_once)
    assert (await running.upload(make_artifact(bert, "bitfit", name="a"))).status_code == 201
    await soon(running, "a", version=1)
    assert hung
    assert "it has not answered within 0.1 s" in caplog.text


async def test_a_write_stands_even_if_it_cannot_be_read_back(running, bert, make_artifact, monkeypatch):
    """The caller is told of it, and it is served as soon as the registry answers again."""

    async def fail(since: Position | None) -> None:
        raise RegistryError("the registry 'x' failed: no route to it")

    with monkeypatch.context() as broken:
        broken.setattr(running.service.store.registry, "snapshot", fail)
        assert (await running.upload(make_artifact(bert, "bitfit", name="a"))).status_code == 201
    await soon(running, "a", version=1)


async def test_an_alias_may_name_what_another_replica_has_just_published(serve, bert, make_artifact):
    """Whichever replica is asked, and it refuses what is deleted there by what is true now, with every reason."""
    async with serve() as one, serve() as two:
        await two.service.store.sync.close()
        for seed, share in ((0, {"1": 1}), (1, {"1": 0.5, "2": 0.5})):
            await one.upload(make_artifact(bert, "bitfit", name="a", seed=seed))
            answer = await two.client.put("/v1/adapters/a/aliases/live", json={"versions": share})
            assert answer.status_code == 200, answer.text
        await one.upload(make_artifact(bert, "bitfit", name="a", seed=2))
        await one.client.delete("/v1/adapters/a/versions/3")
        answer = await two.client.put("/v1/adapters/a/aliases/live", json={"versions": {"3": 0.5, "9": 0.5}})
        assert answer.status_code == 422
        assert answer.json()["error"]["details"] == [
            "version 3 of adapter 'a' is deleted; undelete it first",
            "adapter 'a' has no version 9; its newest is 2",
        ]


async def test_large_manifests_are_read_off_the_event_loop(replicas, bert, make_artifact, monkeypatch):
    """Requests are not kept waiting for what another replica has published."""
    one, two = replicas
    threads = []

    def parse(text: object) -> Manifest:
        threads.append(threading.current_thread())
        return parse_manifest(text)

    monkeypatch.setattr(published, "parse_manifest", parse)
    labels = [f"{number} {'x' * 200}" for number in range(400)]  # more would cost more than this backbone
    assert (await one.upload(make_artifact(bert, "bitfit", name="a", labels=labels))).status_code == 201
    await soon(two, "a", version=1)
    assert threads
    assert threading.main_thread() not in threads


async def test_a_surprise_does_not_end_the_following(running, bert, make_artifact, monkeypatch, caplog):
    registry = running.service.store.sync._registry
    with monkeypatch.context() as broken:
        broken.setattr(registry, "snapshot", lambda since: 1 / 0)
        await until(lambda: "they are tried again" in caplog.text)
    assert (await running.upload(make_artifact(bert, "bitfit", name="a"))).status_code == 201


async def test_bytes_that_cannot_be_read_yet_are_an_error_of_that_version_alone(replicas, bert, make_artifact):
    """A replica may see a version before its own view of the store has the bytes; then it says so and recovers."""
    one, two = replicas
    version = (await one.upload(make_artifact(bert, "bitfit", name="a", seed=30))).json()
    store = Path(str(one.service.settings.store.store))
    blob = store / "blobs" / "sha256" / version["digest"].removeprefix("sha256:")
    hidden = blob.rename(store / "hidden")
    await read_again(two)
    answer = await two.predict("a", "bad")
    assert (answer.status_code, answer.json()["error"]["code"]) == (424, "inference_failed")
    assert "adapter 'a' version 1 cannot be loaded" in answer.json()["error"]["message"]
    assert str(store) not in answer.text
    download = await two.client.get("/v1/adapters/a/versions/1/artifact")
    assert (download.status_code, download.json()["error"]["code"]) == (503, "unavailable")
    hidden.rename(blob)
    await soon(two, "a", version=1)
