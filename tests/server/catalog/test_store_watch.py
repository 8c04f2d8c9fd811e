"""The store of a running server disappears: the server acknowledges no change that would be lost, and recovers."""

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from peltier_backbone.backbone import Backbone
from peltier_client.errors import NotReady
from peltier_server.catalog.store_watch import StoreWatch
from peltier_server.errors import STORE_GONE
from peltier_store.blobs.blobs import Blobs, BlobStoreGone
from peltier_store.blobs.files import sync_file
from peltier_store.location import require_own
from peltier_store.registry import Registry, RegistryGone
from peltier_store.registry.transactions import WriteTransaction

from tests.server.conftest import Running, Serve, until
from tests.support.server_process import Server

TEXT = "a good film"
_GONE = "the server's store is gone, so it accepts no changes; loaded adapters still answer"


@pytest.fixture(scope="module")
def another(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of another registry, with no less in it."""
    store = tmp_path_factory.mktemp("another") / "store"
    asyncio.run(_make_another(store))
    return store


async def _make_another(store: Path) -> None:
    await asyncio.to_thread(store.mkdir)
    registry = await Registry.open(f"sqlite+aiosqlite:///{store / 'registry.db'}")
    await require_own(registry, await asyncio.to_thread(Blobs.open, store / "blobs"))
    for number in range(20):
        await registry.create_tenant(f"tenant-{number}", actor="test")
    await registry.close()


def forget(store: Path) -> None:
    """The registry's file, and what SQLite keeps beside it."""
    for path in store.glob("registry.db*"):
        path.unlink()


def put_in_place(store: Path, other: Path) -> None:
    store.rename(store.with_name("away"))
    shutil.copytree(other, store)


def replace_registry(store: Path, other: Path) -> None:
    forget(store)
    shutil.copy(other / "registry.db", store)


def empty_blobs(store: Path, _: Path) -> None:
    shutil.rmtree(store / "blobs")
    (store / "blobs" / "sha256").mkdir(parents=True)


def empty_store(store: Path, _: Path) -> None:
    store.rename(store.with_name("away"))
    store.mkdir()


def empty_registry(store: Path, _: Path) -> None:
    forget(store)
    (store / "registry.db").touch()


def cut_registry(store: Path, _: Path) -> None:
    os.truncate(store / "registry.db", (store / "registry.db").stat().st_size // 2)


WAYS: dict[str, Callable[[Path, Path], object]] = {
    "removed": lambda store, _: shutil.rmtree(store),
    "renamed": lambda store, _: store.rename(store.with_name("away")),
    "replaced by an empty directory": empty_store,
    "replaced by another store": put_in_place,
    "registry removed": lambda store, _: forget(store),
    "registry emptied": empty_registry,
    "registry replaced by another": replace_registry,
    "registry cut short": cut_registry,
    "blobs removed": lambda store, _: shutil.rmtree(store / "blobs"),
    "blobs emptied": empty_blobs,
}


async def changes(running: Running, data: bytes) -> list[httpx2.Response]:
    """One of each kind."""
    client = running.client
    return [
        await running.upload(data, "another"),
        await client.put("/v1/adapters/demo/aliases/production", json={"version": 1}),
        await client.post("/v1/adapters/demo/versions/1/deprecate", json={"reason": "old"}),
        await client.post("/v1/tenants", json={"name": "acme"}),
    ]


def tree(path: Path) -> list[str]:
    return sorted(str(one.relative_to(path)) for one in path.rglob("*"))


# What every change asks first. Over HTTP one state stays in the gate: there they all are the same exception.
_HTTP = [pytest.param(way, marks=[pytest.mark.slow] * (way != "replaced by another store")) for way in WAYS]


@pytest.mark.parametrize("way", WAYS)
async def test_a_store_that_is_gone_is_not_present_until_it_is_back(
    way: str, another: Path, new_registry: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every check before a change fails and makes nothing at the place, the log has one line at the beginning and one
    at the end, and the same store is present again once it is back."""
    store = tmp_path / "store"
    caplog.set_level("INFO", "peltier_server")
    shutil.copytree(another, tmp_path / "other")
    store.mkdir()
    registry = await Registry.open(f"sqlite+aiosqlite:///{shutil.copy(new_registry, store)}", migrate=False)
    blobs = Blobs.open(store / "blobs")
    await require_own(registry, blobs)
    watch = StoreWatch(registry, blobs)
    await watch.require_present()
    shutil.copytree(store, tmp_path / "backup")
    WAYS[way](store, tmp_path / "other")
    before = tree(tmp_path)
    for _ in range(2):
        with pytest.raises(STORE_GONE):
            await watch.require_present()
    with pytest.raises(NotReady, match="the server's store is gone, so it accepts no changes"):
        watch.require_well()
    assert set(tree(tmp_path)) <= set(before)  # SQLite removes what it keeps beside a file
    shutil.rmtree(store, ignore_errors=True)
    (tmp_path / "backup").rename(store)
    await watch.require_present()
    watch.require_well()
    await registry.close()
    said = [record.getMessage().partition(":")[0] for record in caplog.records]
    assert said == [
        "the store is gone, so changes are refused until it is back",
        "the store is back, so changes are accepted again",
    ]


@pytest.mark.parametrize("way", _HTTP)
async def test_a_store_that_is_gone_takes_no_changes_until_it_is_back(
    way: str,
    serve: Serve,
    another: Path,
    bert: Backbone,
    make_artifact: Callable[..., bytes],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Every change reads 503 and makes nothing at the place; what is resident answers, /ready is 503, and the log has
    one line at the beginning and one at the end. Once the same store is back, all of it works again."""
    store, data = tmp_path / "store", make_artifact(bert)
    caplog.set_level("INFO", "peltier_server")
    shutil.copytree(another, tmp_path / "other")
    async with serve() as running:
        await running.upload(data)
        scores = await running.scores("demo", TEXT)
        shutil.copytree(store, tmp_path / "backup")
        WAYS[way](store, tmp_path / "other")
        before = tree(tmp_path)
        running.service._training_publisher._turns.wake()
        for answer in await changes(running, data):
            assert (answer.status_code, answer.json()["error"]["message"]) == (503, _GONE)
            assert int(answer.headers["retry-after"]) > 0
        assert tree(tmp_path) == before
        assert await running.scores("demo", TEXT) == scores
        ready = await running.client.get("/ready")
        assert (ready.status_code, ready.json()["error"]["code"]) == (503, "not_ready")
        shutil.rmtree(store, ignore_errors=True)
        (tmp_path / "backup").rename(store)
        assert [answer.status_code for answer in await changes(running, data)] == [201, 200, 200, 201]
        assert (await running.client.get("/ready")).status_code == 200
    said = [record.getMessage() for record in caplog.records if record.name.startswith("peltier_server")]
    assert len([line for line in said if "gone" in line]) == 1
    assert said.count("the store is back, so changes are accepted again") == 1
    registry = await Registry.open(f"sqlite+aiosqlite:///{store / 'registry.db'}", migrate=False)
    assert await registry.names("default") == {"demo", "another"}
    await registry.close()


async def test_a_store_that_is_gone_is_noticed_without_a_change(serve: Serve, tmp_path: Path) -> None:
    """And so is its coming back: a directory that was renamed to and fro is the same one."""
    store, away = tmp_path / "store", tmp_path / "away"
    async with serve() as running:
        lifecycle = running.app.state.lifecycle
        store.rename(away)
        await until(lambda: running.service.store_watch._is_gone)
        assert lifecycle.ready
        away.rename(store)
        await until(lambda: not running.service.store_watch._is_gone)
        assert (await running.client.get("/ready")).status_code == 200


async def test_an_adapter_that_is_not_loaded_reads_503(
    serve: Serve, bert: Backbone, make_artifact: Callable[..., bytes], tmp_path: Path
) -> None:
    """Not 424: its bytes are not known to be lost, and it comes in no quarantine."""
    async with serve(host_bytes=0) as running:
        await running.upload(make_artifact(bert))
        running.service.slots.retire(running.service.catalog.get("default", "demo").newest.owned)
        (tmp_path / "store").rename(tmp_path / "away")
        for _ in range(4):
            answer = await running.predict("demo", TEXT)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
        (tmp_path / "away").rename(tmp_path / "store")
        assert (await running.predict("demo", TEXT)).status_code == 200


async def test_an_older_state_of_the_registry_is_not_the_same(serve: Serve, tmp_path: Path) -> None:
    """What was acknowledged since is not in it."""
    store = tmp_path / "store"
    async with serve() as running:
        shutil.copytree(store, tmp_path / "older")
        assert (await running.client.post("/v1/tenants", json={"name": "acme"})).status_code == 201
        forget(store)
        for path in (tmp_path / "older").glob("registry.db*"):
            shutil.copy(path, store)
        answer = await running.client.post("/v1/tenants", json={"name": "zenith"})
        assert (answer.status_code, answer.json()["error"]["message"]) == (503, _GONE)


async def test_the_purge_makes_no_new_store(serve: Serve, tmp_path: Path) -> None:
    """It claims blobs without an owner only once, at the start."""
    async with serve() as running:
        shutil.rmtree(tmp_path / "store" / "blobs")
        with pytest.raises(BlobStoreGone):
            await running.service._purge_task.purge()
        assert not (tmp_path / "store" / "blobs").exists()


async def test_a_registry_that_goes_during_a_write_does_not_acknowledge_it(tmp_path: Path) -> None:
    """The commit went into a file that has no name any more."""
    registry = await Registry.open(f"sqlite+aiosqlite:///{tmp_path}/registry.db")

    def work(_: WriteTransaction) -> None:
        (tmp_path / "registry.db").unlink()

    with pytest.raises(RegistryGone, match="was removed or replaced during a write"):
        await registry._transactions.write("test", work)
    await registry.close()


async def test_blobs_that_go_during_a_put_are_not_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes may be in a directory that was made anew, or in one that is elsewhere by now."""
    blobs = Blobs.open(tmp_path / "blobs")
    await blobs.owner.claim("somebody")

    def sync_and_move(path: Path) -> None:
        sync_file(path)
        (tmp_path / "blobs").rename(tmp_path / "away")

    monkeypatch.setattr("peltier_store.blobs.blobs.sync_file", sync_and_move)
    with pytest.raises(BlobStoreGone, match="it has no directory 'sha256'"):
        await blobs.put(b"bytes")


def test_a_server_does_not_start_on_a_registry_that_was_cut_short(tmp_path: Path, new_registry: Path) -> None:
    """Exit status 1 and one sentence, without a traceback; the file stays as it is."""
    store = tmp_path / "store"
    store.mkdir()
    left = new_registry.read_bytes()[:10_000]
    (store / "registry.db").write_bytes(left)
    server = Server(tmp_path / "log", "--store", str(store))
    try:
        assert server.process.wait(60) == 1
    finally:
        server.end()
    assert f"error: the registry '{store}/registry.db' was cut short: it has 10000 bytes instead of" in server.log
    assert "Traceback" not in server.log
    assert (store / "registry.db").read_bytes() == left
