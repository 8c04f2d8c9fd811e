"""The store of a running server disappears: the server acknowledges no change that would be lost, and recovers."""

import asyncio
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest
from peltier_backbone.backbone import Backbone
from peltier_server.extensions.trainings.trainings import Trainings
from peltier_store.blobs.blobs import Blobs, BlobStoreGone
from peltier_store.blobs.files import sync_file
from peltier_store.location import require_own
from peltier_store.registry.extensions.registry import Registry

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


WAYS: dict[str, Callable[[Path, Path], object]] = {
    "moved away": lambda store, _: store.rename(store.with_name("away")),
    "another store in its place": put_in_place,
    "another registry in its place": replace_registry,
    "emptied blobs": empty_blobs,
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
    """All files, without those that SQLite keeps beside a registry that is open."""
    return sorted(str(one.relative_to(path)) for one in path.rglob("*") if not one.name.endswith(("-shm", "-wal")))


@pytest.mark.parametrize("way", WAYS)
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
    one line at the beginning and one at the end for blobs and for the registry. Once the same store is back, all of it
    works again."""
    store, data = tmp_path / "store", make_artifact(bert)
    caplog.set_level("INFO", "peltier_server")
    shutil.copytree(another, tmp_path / "other")
    async with serve() as running:
        await running.upload(data)
        scores = await running.scores("demo", TEXT)
        shutil.copytree(store, tmp_path / "backup")
        WAYS[way](store, tmp_path / "other")
        before = tree(tmp_path)
        running.app.state.started[Trainings].publisher._turns.wake()
        for answer in await changes(running, data):
            assert (answer.status_code, answer.json()["error"]["message"]) == (503, _GONE)
            assert int(answer.headers["retry-after"]) > 0
        assert tree(tmp_path) == before
        assert await running.scores("demo", TEXT) == scores
        await until(lambda: running.app.state.lifecycle.problem is not None)
        ready = await running.client.get("/ready")
        assert (ready.status_code, ready.json()["error"]["code"]) == (503, "not_ready")
        with suppress(FileNotFoundError):
            store.rename(tmp_path / "foreign")
        (tmp_path / "backup").rename(store)
        assert [answer.status_code for answer in await changes(running, data)] == [201, 200, 200, 201]
        assert (await running.client.get("/ready")).status_code == 200
    said = Counter(record.getMessage().partition(",")[0] for record in caplog.records)
    for part in ("store", "registry"):
        assert said[f"the {part} is gone"] == said[f"the {part} is back"] <= 1
    assert said["the store is gone"] + said["the registry is gone"] > 0
    registry = await Registry.open(f"sqlite+aiosqlite:///{store / 'registry.db'}", migrate=False)
    assert await registry.names("default") == {"demo", "another"}
    await registry.close()


async def test_a_store_that_is_gone_is_noticed_without_a_change(serve: Serve, tmp_path: Path) -> None:
    """And so is its coming back: a directory that was renamed to and fro is the same one."""
    store, away = tmp_path / "store", tmp_path / "away"
    async with serve() as running:
        lifecycle = running.app.state.lifecycle
        store.rename(away)
        await until(lambda: lifecycle.problem is not None)
        assert lifecycle.ready
        away.rename(store)
        await until(lambda: lifecycle.problem is None)
        assert (await running.client.get("/ready")).status_code == 200


async def test_an_adapter_that_is_not_loaded_reads_503(serve, bert, make_artifact, tmp_path):
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


async def test_an_older_copy_of_the_registry_is_read_again(serve, bert, make_artifact, tmp_path, caplog):
    """What was acknowledged since is not in it, so the server forgets it, and then accepts changes."""
    store = tmp_path / "store"
    async with serve() as running:
        await running.upload(make_artifact(bert), "kept")
        shutil.copytree(store, tmp_path / "older")
        await running.upload(make_artifact(bert), "lost")
        forget(store)
        for path in (tmp_path / "older").glob("registry.db*"):
            shutil.copy(path, store)
        await until(lambda: running.service.catalog.find("default", "lost") is None)
        await until(lambda: running.service.store.sync.position is not None)  # once extensions have read theirs
        assert (await running.client.get("/ready")).status_code == 200
        assert (await running.predict("lost", TEXT)).status_code == 404
        assert (await running.predict("kept", TEXT)).status_code == 200
        assert (await running.client.post("/v1/tenants", json={"name": "zenith"})).status_code == 201
    (line,) = (record.getMessage() for record in caplog.records if "read again" in record.getMessage())
    assert "is at revision 3 and lacks the change that was its revision 5: it was restored, lost changes in a" in line


async def test_the_purge_makes_no_new_store(serve: Serve, tmp_path: Path) -> None:
    """It claims blobs without an owner only once, at the start."""
    async with serve() as running:
        shutil.rmtree(tmp_path / "store" / "blobs")
        with pytest.raises(BlobStoreGone):
            await running.service._purge_task.purge()
        assert not (tmp_path / "store" / "blobs").exists()


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
