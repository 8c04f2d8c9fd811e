"""Loading, ready, draining."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from peltier_backbone.backbone import Backbone
from peltier_client.errors import NotReady
from peltier_server import service
from peltier_server.app import create_app
from peltier_server.extensions.settings import Settings
from peltier_server.http.lifecycle import Lifecycle
from peltier_store.blobs.blobs import BlobError, Blobs

from tests.server.conftest import Running, make_client, until


def test_a_loading_server_accepts_nothing() -> None:
    with pytest.raises(NotReady) as caught:
        Lifecycle().service()
    assert caught.value.retry_after == 1


async def test_health_answers_while_loading(settings_of: Callable[..., Settings]) -> None:
    app = create_app(settings_of())
    async with app.router.lifespan_context(app), make_client(app) as client:
        answers = [await client.get(path) for path in ("/health", "/ready", "/info")]
        await app.state.lifecycle.settled()
        ready = await client.get("/ready")
    assert [answer.status_code for answer in answers] == [200, 503, 503]
    assert answers[1].json()["error"]["code"] == "not_ready"
    assert answers[1].headers["retry-after"] == "1"
    assert ready.json() == {"status": "ready"}


async def test_a_backbone_that_is_not_there_is_the_failure(settings_of: Callable[..., Settings]) -> None:
    app = create_app(settings_of(backbone="/does/not/exist"))
    async with app.router.lifespan_context(app):
        with pytest.raises(Exception, match="/does/not/exist") as caught:
            await app.state.lifecycle.settled()
    assert type(caught.value).is_user_error
    assert app.state.lifecycle.failure is caught.value


async def test_a_store_of_another_registry_is_refused(settings_of: Callable[..., Settings]) -> None:
    """The server never becomes ready, because it would take for garbage what belongs to the other."""
    settings = settings_of()
    await Blobs.open(settings.store.blobs).owner.claim("another")
    app = create_app(settings)
    async with app.router.lifespan_context(app):
        with pytest.raises(BlobError, match="belongs to the registry another, not to this one"):
            await app.state.lifecycle.settled()


async def test_a_draining_server_finishes_what_it_accepted(running, bert, make_artifact, hold_runner):
    """The request that waits is answered; newcomers and the readiness probe get 503 with a time to come back."""
    await running.upload(make_artifact(bert, name="a"))
    lifecycle = running.app.state.lifecycle
    async with hold_runner():
        accepted = asyncio.ensure_future(running.predict("a", "a good film"))
        await until(lambda: not lifecycle.idle)
        lifecycle.drain()
        refused = [await running.predict("a", "bad"), await running.client.get("/ready")]
    assert (await accepted).status_code == 200
    assert lifecycle.idle
    for answer in refused:
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "draining"
        assert answer.headers["retry-after"] == "1"


async def test_only_newcomers_are_counted_as_refused(running, bert, make_artifact):
    """Probes that a drain answers, /ready's 503 among them, are not in the number that the log states."""
    await running.upload(make_artifact(bert, name="a"))
    running.app.state.lifecycle.drain()
    probes = [await running.client.get(path) for path in ("/health", "/ready")]
    asked = [await running.predict("a", "bad"), await running.client.get("/v1/adapters")]
    assert [answer.status_code for answer in (*probes, *asked)] == [200, 503, 503, 503]
    assert running.app.state.lifecycle.num_refused == len(asked)


async def test_a_lame_duck_still_serves(running: Running, bert: Backbone, make_artifact: Callable[..., bytes]) -> None:
    await running.upload(make_artifact(bert, name="a"))
    before = await running.predict("a", "bad")
    running.app.state.lifecycle.leave()
    ready, answer = await running.client.get("/ready"), await running.predict("a", "bad")
    assert (ready.status_code, ready.json()["error"]["code"]) == (503, "draining")
    assert (before.status_code, answer.status_code) == (200, 200)
    assert ("connection" in before.headers, answer.headers["connection"]) == (False, "close")


async def test_a_body_that_arrives_in_the_drain_is_read(running, bert, make_artifact):
    """The request was there before, so it is answered."""
    await running.upload(make_artifact(bert, name="a"))
    lifecycle = running.app.state.lifecycle

    async def body() -> AsyncIterator[bytes]:
        yield b'{"inputs": '
        lifecycle.drain()
        yield b'"bad"}'

    headers = {"content-type": "application/json"}
    answer = await running.client.post("/v1/tasks/a/predict", content=body(), headers=headers)
    assert answer.status_code == 200
    assert lifecycle.idle


async def test_kernels_are_compiled_before_the_first_request(serve, monkeypatch):
    warm: list[Backbone] = []
    monkeypatch.setattr(service, "warm_up", warm.append)
    async with serve() as running:
        assert warm == [running.service.backbone]


async def test_a_restart_keeps_everything(serve, bert, make_artifact):
    """Versions, their numbers, their bytes and their answers are what they were; what was deleted stays deleted. The
    kernels are chosen anew by their speed, so answers are the same to rounding."""
    first, second = (make_artifact(bert, name="a", seed=seed) for seed in (1, 2))
    async with serve() as running:
        for data in (first, second, make_artifact(bert, name="b")):
            assert (await running.upload(data)).status_code == 201
        await running.client.delete("/v1/adapters/b")
        before = (await running.client.get("/v1/adapters/a/versions")).json()
        scores = await running.scores("a@1", "bad")
    async with serve() as running:
        assert (await running.client.get("/v1/adapters/a/versions")).json() == before
        assert await running.scores("a@1", "bad") == pytest.approx(scores, abs=1e-5)
        assert (await running.client.get("/v1/adapters/a/versions/2/artifact")).content == second
        assert (await running.client.get("/v1/adapters/b")).status_code == 404
        assert (await running.upload(make_artifact(bert, name="b"))).json()["version"] == 2


def names(running: Running) -> list[str]:
    found = running.service.catalog.page("default", after="", containing="", limit=9)
    return [published.name for published in found]


async def test_examples_are_published_once(serve, bert, make_artifact, tmp_path):
    """A new registry begins with them. One that was deleted does not come back, though another is refused each time and
    the store has forgotten everything but the registry; nor does one replace what a user calls the same."""
    examples = tmp_path / "examples"
    examples.mkdir()
    for name in ("a", "b"):
        (examples / f"{name}.safetensors").write_bytes(make_artifact(bert, name=name))
    async with serve(publish=examples) as running:
        assert names(running) == ["a", "b"]
        await running.client.delete("/v1/adapters/a")
        assert (await running.upload(make_artifact(bert, name="c"))).json()["version"] == 1
        registry = running.service.settings.store.registry
    (examples / "0.safetensors").write_bytes(b"not an artifact")
    for name in ("c", "d"):
        (examples / f"{name}.safetensors").write_bytes(make_artifact(bert, name=name, seed=1))
    async with serve(publish=examples, store=tmp_path / "new", registry=registry) as running:
        assert names(running) == ["b", "c", "d"]
        assert len(running.service.catalog.find("default", "c").entries) == 1


async def test_a_refused_example_does_not_stop_the_server(serve, tmp_path, caplog):
    """Examples of one backbone do no harm under another."""
    (tmp_path / "x.safetensors").write_bytes(b"not an artifact")
    async with serve(publish=tmp_path) as running:
        assert (await running.client.get("/ready")).status_code == 200
    assert "x.safetensors is not published" in caplog.text
